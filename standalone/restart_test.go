package main

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/examples/arena/ping"
)

// port returns the port from an instance's configuration file.
func port(t *testing.T, data string, i instance) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(data, "node", "running", i.UID, "server.properties"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "server-port="); ok {
			n, _ := strconv.Atoi(value)
			return n
		}
	}
	t.Fatalf("no server-port in %q", b)
	return 0
}

func TestDemoRunsThreeServersEachWithItsOwnPortAndFile(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := start(t, data, "-demo")
	ports := map[int]bool{}
	for name, i := range p.running(3) {
		ports[i.Port] = true
		if got := port(t, data, i); got != i.Port {
			t.Errorf("%s: its file says port %d, the API %d", name, got, i.Port)
		}
		if _, err := ping.Ping(t.Context(), net.JoinHostPort("127.0.0.1", strconv.Itoa(i.Port))); err != nil {
			t.Errorf("%s does not answer on port %d: %v", name, i.Port, err)
		}
	}
	if len(ports) != 3 {
		t.Errorf("ports %v, want three different ones", ports)
	}
	for _, want := range []string{p.ready.API, p.ready.PasswordFile, "orrery login --data "} {
		if !strings.Contains(p.stdout.String(), want) {
			t.Errorf("printed %q, want it to name %q", &p.stdout, want)
		}
	}

	p.stop()
	if left := processes(t, data); len(left) > 0 {
		t.Errorf("processes %v are left after SIGTERM", left)
	}
}

func TestDemoRunsOnAfterAStartWithoutIt(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := start(t, data, "-demo")
	p.running(3)
	p.stop()
	p = start(t, data)
	p.running(3)
	var group struct{ Command string }
	p.get("/api/v1/groups/arena", &group)
	if group.Command != demoCommand {
		t.Errorf("its command is %q, not the program of its template", group.Command)
	}
}

func TestDemoKeepsWhatItsOwnerMadeOfIt(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := start(t, data, "-demo")
	p.running(3)
	if err := p.call(http.MethodPatch, "/api/v1/groups/arena", map[string]any{"minInstances": 1, "maxPlayers": 99, "command": "exec /gone/standalone arena"}, nil); err != nil {
		t.Fatal(err)
	}
	p.running(1)
	p.stop()

	p = start(t, data, "-demo")
	p.running(1)
	var group struct {
		MinInstances, MaxPlayers int
		Command                  string
	}
	p.get("/api/v1/groups/arena", &group)
	if group.MinInstances != 1 || group.MaxPlayers != 99 {
		t.Errorf("the second start made %+v of the owner's group, want it untouched", group)
	}
	if group.Command != demoCommand {
		t.Errorf("the command is %q, want the program of the template", group.Command)
	}
	if strings.Contains(p.stdout.String(), "could not be declared") {
		t.Errorf("printed %q", &p.stdout)
	}
	p.stop()
}

func TestInstancesRunOnAndAreAdopted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		end  func(*program)
	}{
		{"after a stop with -stop-instances=false", (*program).stop},
		{"after kill -9", (*program).kill},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := t.TempDir()
			p := start(t, data, "-demo", "-stop-instances=false")
			before := p.running(3)
			password, err := os.ReadFile(p.ready.PasswordFile)
			if err != nil {
				t.Fatal(err)
			}
			c.end(p)
			if got := len(processes(t, data)); got < 3 {
				t.Fatalf("%d processes run on, want three servers", got)
			}

			p = start(t, data)
			if diff := cmp.Diff(before, p.running(3)); diff != "" {
				t.Errorf("adopted instances (-before +after)\n%s", diff)
			}
			if again, err := os.ReadFile(p.ready.PasswordFile); err != nil || string(again) != string(password) {
				t.Errorf("the password file changed at the second boot: %v", err)
			}

			p.stop()
			if left := processes(t, data); len(left) > 0 {
				t.Errorf("processes %v are left after SIGTERM", left)
			}
		})
	}
}

func TestAStartThatFailsLeavesInstancesAlone(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := start(t, data, "-demo")
	before := p.running(3)
	p.kill()

	obstacle := filepath.Join(data, "ready.json.new") // where ready.json is written first
	if err := os.Mkdir(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	got := refused(t, "-data", data, "-listen", "127.0.0.1:0")
	if want := "standalone: the data directory " + data + " cannot be written: is a directory"; !strings.Contains(got, want) {
		t.Errorf("stderr %q, want %q in it", got, want)
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}

	p = start(t, data)
	if diff := cmp.Diff(before, p.running(3)); diff != "" {
		t.Errorf("instances after a start that failed (-before +after)\n%s", diff)
	}
	p.stop()
}

func TestAnotherClusterSecretIsRefused(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := start(t, data)
	p.stop()
	file := filepath.Join(data, "cluster-secret")
	if err := os.WriteFile(file, []byte(strings.Repeat("another", 5)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := "standalone: the file " + file + " does not hold the secret of the cluster in " + filepath.Join(data, "etcd") + ": bring back the file that belongs to it\n"
	if got := refused(t, "-data", data, "-listen", "127.0.0.1:0"); got != want {
		t.Errorf("stderr\n got %q\nwant %q", got, want)
	}
}

func TestAnotherSealingKeyIsRefused(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := start(t, data)
	p.stop()
	file := filepath.Join(data, "seal-key")
	own, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, replace := range map[string]func() error{
		"another": func() error { return os.WriteFile(file, []byte(strings.Repeat("another", 5)+"\n"), 0o600) },
		"none":    func() error { return os.Remove(file) },
	} {
		if err := replace(); err != nil {
			t.Fatal(err)
		}
		want := "standalone: the file " + file + " does not hold the sealing key of the cluster in " + filepath.Join(data, "etcd") + ": bring back the file that belongs to it\n"
		if got := refused(t, "-data", data, "-listen", "127.0.0.1:0"); got != want {
			t.Errorf("%s: stderr\n got %q\nwant %q", name, got, want)
		}
	}
	if err := os.WriteFile(file, own, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, data).stop()
}
