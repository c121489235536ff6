package e2e_test

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/e2e/cluster/site"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/proctest"
)

// The test runs the scripts of the guide with its settings, in a directory instead of /.
func TestStandaloneMovesToSeparateServicesAndNoInstanceEnds(t *testing.T) {
	t.Parallel()
	if os.Getenv("ORRERY_E2E") != "processes" {
		return // make e2e runs it
	}
	for name, c := range map[string]struct {
		authority      string
		joined, slowly bool
	}{
		"a machine alone":              {authority: "orrery pki init"},
		"slowly, with another machine": {authority: "install -D", joined: true, slowly: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newSplitHost(t)
			h.startStandalone(c.joined)
			admin := cluster.Login(t, h)
			if c.joined {
				dir := filepath.Join(t.TempDir(), "etc")
				if said, err := joinWith(t, dir, invite(t, admin, "guest")); err != nil {
					t.Fatalf("%v: %s", err, said)
				}
				startGuest(t, dir, filepath.Join(t.TempDir(), "guest"))
				createGroup(t, admin, catGroup("guests", map[string]any{"minInstances": 1, "nodeAffinity": []string{"host=guest"}}))
				admin.AwaitRunning("guests", 1)
			}
			admin.Do("PUT", "/api/v1/secrets/db", map[string]any{"value": "stored-value"}).OK(201)
			admin.Do("POST", "/api/v1/templates", map[string]any{"name": "vault"}).OK(201)
			admin.Do("PUT", "/api/v1/templates/vault/files/content?path=values.properties", map[string]any{"content": "db=%DB%\n"}).OK(200)
			admin.Do("PUT", "/api/v1/templates/vault/variables", []map[string]any{{"key": "DB", "type": "SECRET"}}).OK(200)
			createGroup(t, admin, vaultGroup(t, h, "vault", 2))
			createGroup(t, admin, catGroup("world", map[string]any{"static": true, "minInstances": 1}))
			admin.AwaitRunning("vault", 2)
			admin.AwaitRunning("world", 1)
			before := runs(admin)
			if want := map[bool]int{false: 3, true: 4}[c.joined]; len(before) != want {
				t.Fatalf("%v run, want %d instances", before, want)
			}

			h.run(c.authority, nil)
			h.run("mkdir -p", nil)
			h.writeFiles()
			h.run("systemctl disable --now orrery-standalone", func(unit string) {
				if c.slowly && unit == "orrery-nodeagent" {
					h.awaitNode(admin, "OFFLINE")
				}
			})
			h.awaitNode(admin, "ONLINE")
			await.That(t, "the same processes", func() string { return gocmp.Diff(before, runs(admin)) })
			h.run("systemctl enable --now orrery@scheduler", nil)
			h.templates = h.path("/var/lib/orrery/templatesvc/templates")
			admin = cluster.Login(t, h)
			h.run("cd /var/lib/orrery/standalone", nil)

			admin.Do("PATCH", "/api/v1/groups/vault", map[string]any{"minInstances": 3}).OK(200)
			after := admin.AwaitRunning("vault", 3)
			for _, i := range after {
				values, err := os.ReadFile(fmt.Sprintf("/proc/%d/cwd/values.properties", i.PID))
				if err != nil || string(values) != "db=stored-value\n" {
					t.Errorf("%s: the file with the secret is %q, %v", i.ID, values, err)
				}
			}
			createGroup(t, admin, vaultGroup(t, h, "fresh", 1))
			admin.AwaitRunning("fresh", 1)

			killed := after[0]
			if err := syscall.Kill(killed.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			await.That(t, "a process in place of the killed one", func() string {
				now := runs(admin)
				return await.Unless(now[run{killed.UID, killed.PID}] == "" && len(admin.Running("vault")) == 3, "%v", now)
			})
			now := runs(admin)
			for r, name := range before {
				if r.uid != killed.UID && (now[r] != name || !proctest.Lives(r.pid)) {
					t.Errorf("%s with %+v is gone, now %v", name, r, now)
				}
			}
		})
	}
}

// vaultGroup returns the spec of a group that needs the secret db, the template vault, and one from the directory of templates.
func vaultGroup(t *testing.T, c cluster.Cluster, name string, n int) map[string]any {
	t.Helper()
	cluster.WriteTemplate(t, c, "demo/"+name, map[string]string{"hello.txt": "hello"})
	return catGroup(name, map[string]any{
		"minInstances": n, "templates": []string{"vault", "demo/" + name}, "fileModifications": []string{"values.properties"},
		"variableValues": map[string]string{"DB": "secret:db"},
	})
}

// run is a process of an instance.
type run struct {
	uid string
	pid int
}

// runs returns the names of all instances that run.
func runs(admin *cluster.Client) map[run]string {
	found := map[run]string{}
	for _, i := range admin.Running("") {
		found[run{i.UID, i.PID}] = i.ID
	}
	return found
}

// splitGuide is the page whose scripts and files the test uses.
const splitGuide = "docs/move-to-separate-services.md"

var (
	guideScript = regexp.MustCompile("(?ms)^ *```text\n(.*?)^ *```$")
	guideFile   = regexp.MustCompile("(?ms)^`(/[^`]+)`.*?:\n\n```ini\n(.*?)^```$")
)

// splitUsers are the ids that the users of the guide have in tests of root. In other tests all are the same user.
var splitUsers = map[string]string{"orrery": "61235", "etcd": "61236"}

// as returns a command that a user of the guide runs.
func as(user string, command ...string) []string {
	if os.Geteuid() != 0 {
		return command
	}
	return append([]string{"setpriv", "--reuid=" + splitUsers[user], "--regid=" + splitUsers[user], "--clear-groups"}, command...)
}

// splitHost is the machine of the guide. Its files are in a directory, and its units are processes.
type splitHost struct {
	t     *testing.T
	root  string
	page  string
	here  *strings.Replacer // from the guide's paths and addresses to those of the test
	api   string
	nodes string
	units map[string]*site.Process
	// templates is the directory of templates, which the move changes.
	templates string
}

func newSplitHost(t *testing.T) *splitHost {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(cluster.Root(t), splitGuide))
	if err != nil {
		t.Fatal(err)
	}
	h := &splitHost{t: t, root: cluster.OpenDir(t), page: string(page), units: map[string]*site.Process{}}
	var pairs []string
	for _, at := range []string{"127.0.0.1:7401", "127.0.0.1:7402", "127.0.0.1:8080", "127.0.0.1:2379", "127.0.0.1:2380"} {
		free, err := site.Address()
		if err != nil {
			t.Fatal(err)
		}
		pairs = append(pairs, at, free)
	}
	for _, dir := range []string{"/var/lib/", "/etc/", "/root/"} {
		pairs = append(pairs, dir, h.root+dir)
	}
	for user, id := range splitUsers {
		if os.Geteuid() == 0 {
			pairs = append(pairs, "-o "+user, "-o "+id, user+": ", id+" ")
		} else {
			pairs = append(pairs, "-o "+user, "", "chown ", ": ")
		}
	}
	h.here = strings.NewReplacer(pairs...)
	h.api, h.nodes = h.here.Replace("127.0.0.1:8080"), h.here.Replace("127.0.0.1:7401")
	h.templates = h.path("/var/lib/orrery/standalone/templates")
	t.Cleanup(h.Stop)
	return h
}

func (h *splitHost) path(p string) string { return h.here.Replace(p) }
func (h *splitHost) API() string          { return "http://" + h.api }
func (h *splitHost) DataDir() string      { return h.path("/var/lib/orrery/standalone") }
func (h *splitHost) TemplateDir() string  { return h.templates }
func (h *splitHost) PasswordFile() string { return filepath.Join(h.DataDir(), "admin-password") }

// Stop stops all units, and kills the instances.
func (h *splitHost) Stop() {
	for _, unit := range []string{"orrery-standalone", "orrery@enforcer", "orrery@scheduler", "orrery-nodeagent", "orrery@apigateway", "orrery@templatesvc", "etcd"} {
		if p := h.units[unit]; p != nil {
			if err := p.Stop(); err != nil {
				h.t.Error(err)
			}
			if log, err := p.Log(); h.t.Failed() {
				h.t.Logf("---- %s %v\n%s", unit, err, log)
			}
		}
	}
	await.That(h.t, "no instance left", func() string {
		left := proctest.Where(h.t, func(p proctest.Process) bool { return strings.HasPrefix(p.Dir(), h.DataDir()+"/") })
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return await.Unless(len(left) == 0, "%v", left)
	})
}

// start starts a unit.
func (h *splitHost) start(unit string, command ...string) {
	h.t.Helper()
	p := site.NewProcess(unit, "/usr/bin/env", filepath.Join(h.root, unit+".log"), command...)
	if err := p.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.units[unit] = p
}

func (h *splitHost) startStandalone(joinable bool) {
	h.t.Helper()
	args := []string{cluster.Program(h.t, "./standalone"), "-data", h.DataDir(), "-listen", h.api, "-stop-instances=false", "-max-cpu", "100"}
	if joinable {
		args = append(args, "-nodes-listen", h.nodes)
	}
	if err := os.MkdirAll(h.DataDir(), 0o755); err != nil {
		h.t.Fatal(err)
	}
	h.bash("chown orrery: /var/lib/orrery/standalone")
	h.start("orrery-standalone", as("orrery", args...)...)
	await.That(h.t, "standalone", func() string {
		if p := h.units["orrery-standalone"]; !p.Running() {
			log, _ := p.Log()
			h.t.Fatalf("standalone ended:\n%s", log)
		}
		_, err := os.Stat(filepath.Join(h.DataDir(), "ready.json"))
		return await.Unless(err == nil, "%v", err)
	})
}

// writeFiles writes the files that the guide shows.
func (h *splitHost) writeFiles() {
	h.t.Helper()
	for _, found := range guideFile.FindAllStringSubmatch(h.page, -1) {
		path := h.path(found[1])
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			h.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(h.path(found[2])), 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
}

// run runs the script of the guide that begins with a text. It calls starting, if not nil, before it starts a unit.
func (h *splitHost) run(begins string, starting func(unit string)) {
	h.t.Helper()
	for _, found := range guideScript.FindAllStringSubmatch(h.page, -1) {
		if !strings.HasPrefix(strings.TrimSpace(found[1]), begins) {
			continue
		}
		script := ""
		for line := range strings.Lines(found[1]) {
			units, ok := strings.CutPrefix(strings.TrimSpace(line), "systemctl ")
			if !ok {
				script += line
				continue
			}
			h.bash(script)
			script = ""
			words := strings.Fields(units)
			for _, unit := range words[2:] { // after enable --now
				h.systemctl(words[0], unit, starting)
			}
		}
		h.bash(script)
		return
	}
	h.t.Fatalf("%s has no script that begins with %q", splitGuide, begins)
}

func (h *splitHost) bash(script string) {
	h.t.Helper()
	cmd := exec.CommandContext(cluster.Bounded(h.t), "bash", "-euc", h.path(script))
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(cluster.Program(h.t, "./cli/cmd/orrery"))+":"+os.Getenv("PATH"))
	if said, err := cmd.CombinedOutput(); err != nil {
		h.t.Fatalf("%v: %s\n%s", err, script, said)
	}
}

func (h *splitHost) systemctl(verb, unit string, starting func(unit string)) {
	h.t.Helper()
	if verb == "disable" {
		if err := h.units[unit].Stop(); err != nil {
			h.t.Fatal(err)
		}
		return
	}
	if starting != nil {
		starting(unit)
	}
	if unit == "etcd" {
		h.startEtcd()
		return
	}
	if _, service, ok := strings.Cut(unit, "@"); ok {
		settings := append(h.settings("/etc/orrery/common.env"), h.settings("/etc/orrery/"+service+".env")...)
		settings = append(settings, "ORRERY_CLUSTER_SECRET="+h.settings("/etc/orrery/secret")[0])
		if service == "apigateway" || service == "templatesvc" {
			settings = append(settings, "ORRERY_SEAL_KEY="+h.settings("/etc/orrery/seal-key")[0])
		}
		h.start(unit, append([]string{"-C", h.path("/var/lib/orrery/" + service)}, append(settings, as("orrery", h.program(service))...)...)...)
		return
	}
	settings := append(h.settings("/var/lib/orrery/nodeagent/join.env"), h.settings("/etc/orrery/nodeagent.env")...)
	h.start(unit, append(settings, h.program("nodeagent"))...)
}

// program builds a service.
func (h *splitHost) program(service string) string {
	h.t.Helper()
	return cluster.Program(h.t, "./"+service+"/cmd/"+service)
}

// settings returns the lines of a file of settings; none if it does not exist.
func (h *splitHost) settings(file string) []string {
	h.t.Helper()
	text, err := os.ReadFile(h.path(file))
	if err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// startEtcd starts the member of the tests, which has flags instead of some of etcd's settings.
func (h *splitHost) startEtcd() {
	h.t.Helper()
	args := []string{cluster.Program(h.t, "./e2e/cmd/etcd"), "-tick", "100ms", "-ready", filepath.Join(h.root, "etcd.ready")}
	flags := map[string]string{
		"ETCD_NAME": "-name", "ETCD_DATA_DIR": "-data", "ETCD_LISTEN_CLIENT_URLS": "-client", "ETCD_LISTEN_PEER_URLS": "-peer",
		"ETCD_CERT_FILE": "-cert", "ETCD_KEY_FILE": "-key", "ETCD_TRUSTED_CA_FILE": "-ca",
	}
	for _, setting := range h.settings("/etc/etcd/etcd.env") {
		name, value, _ := strings.Cut(setting, "=")
		if flag := flags[name]; flag != "" {
			_, at, _ := strings.Cut(value, "://")
			args = append(args, flag, cmp.Or(at, value))
		}
	}
	h.start("etcd", as("etcd", args...)...)
}

// awaitNode waits for a status of the node of the host.
func (h *splitHost) awaitNode(admin *cluster.Client, status string) {
	h.t.Helper()
	await.That(h.t, "the node "+status, func() string {
		for unit, p := range h.units {
			if ended := p.Ended(); len(ended) > 0 {
				h.t.Fatalf("%s: %v", unit, ended)
			}
		}
		reply, err := admin.Try(h.t.Context(), http.MethodGet, "/api/v1/nodes/node-1", nil)
		if err != nil {
			return err.Error()
		}
		return await.Unless(strings.Contains(string(reply.Body), `"status":"`+status+`"`), "%s", reply.Body)
	})
}
