// Package cli_test runs the command line like a user: as a program, against a running Orrery.
package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

func TestMain(m *testing.M) {
	code := m.Run()
	cluster.Cleanup()
	os.Exit(code)
}

// user is somebody with a home directory who runs orrery.
type user struct {
	t       *testing.T
	program string
	home    string
	env     []string
}

func newUser(t *testing.T) *user {
	t.Helper()
	u := &user{t: t, program: cluster.Program(t, "./cli/cmd/orrery"), home: t.TempDir()}
	u.env = append(os.Environ(),
		"HOME="+u.home, "ORRERY_CONFIG="+filepath.Join(u.home, "orrery.yaml"), "DBUS_SESSION_BUS_ADDRESS=",
		"PATH="+filepath.Dir(u.program)+":"+os.Getenv("PATH"))
	return u
}

// logIn logs in at gateways, with the password of the first user of the cluster.
func (u *user) logIn(c cluster.Cluster, gateways ...cluster.Cluster) {
	u.t.Helper()
	args := []string{"login", "--username", "admin", "--password-file", c.PasswordFile(), "--name", "test"}
	for _, g := range append([]cluster.Cluster{c}, gateways...) {
		args = append(args, g.API())
	}
	u.ok(args...)
}

// result is how a command ended.
type result struct {
	code           int
	stdout, stderr string
}

func (u *user) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(cluster.Bounded(u.t), u.program, args...)
	cmd.Dir, cmd.Env = u.home, u.env
	return cmd
}

func (u *user) run(stdin string, args ...string) result {
	u.t.Helper()
	cmd := u.command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		u.t.Fatalf("orrery %s: %v", strings.Join(args, " "), err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// ok runs a command that must succeed, and returns what it printed.
func (u *user) ok(args ...string) string {
	u.t.Helper()
	return u.given("", args...)
}

// given is ok with a standard input.
func (u *user) given(stdin string, args ...string) string {
	u.t.Helper()
	r := u.run(stdin, args...)
	if r.code != 0 {
		u.t.Fatalf("orrery %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// refused runs a command that must end with a code and a text on standard error.
func (u *user) refused(code int, text string, args ...string) {
	u.t.Helper()
	if r := u.run("", args...); r.code != code || !strings.Contains(r.stderr, text) {
		u.t.Errorf("orrery %s: exit code %d, want %d with %q\n%s%s", strings.Join(args, " "), r.code, code, text, r.stdout, r.stderr)
	}
}

// group is a document of a group whose instances repeat what they read.
func group(name string, minimum int) string {
	return fmt.Sprintf("kind: Group\nname: %s\ncommand: exec cat\nminInstances: %d\nmaxInstances: 5\nmemoryMb: 16\nstopCommand: \"\"\nshutdownGraceSeconds: 1\n", name, minimum)
}

func TestFirstMinutes(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	u := newUser(t)
	u.logIn(c)
	u.given(group("echo", 2), "apply", "--wait", "-f", "-")
	if got := strings.Fields(u.ok("get", "instances", "--group", "echo", "-o", "name")); !slices.Equal(got, []string{"echo-1", "echo-2"}) {
		t.Errorf("instances %v", got)
	}
	u.ok("scale", "echo", "--to", "3", "--wait")
	if got := u.ok("get", "instance", "echo-3", "-o", "jsonpath=state"); got != "RUNNING\n" {
		t.Errorf("after scale --wait, echo-3 is %q", got)
	}
	u.refused(4, "did you mean echo-3?", "get", "instance", "echo-33")
	u.refused(2, "--yes", "stop", "--group", "echo")
	u.ok("stop", "--group", "echo", "--yes")
	u.ok("delete", "group", "echo")
	u.ok("wait", "group", "echo", "--for", "deleted")
}

func TestApplyNamesTheOtherWriter(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	u := newUser(t)
	u.logIn(c)
	u.given(group("echo", 1), "apply", "-f", "-")
	u.ok("scale", "echo", "--to", "2")
	r := u.run(group("echo", 3), "apply", "-f", "-")
	if r.code != 6 || !strings.Contains(r.stdout+r.stderr, "minInstances") || !strings.Contains(r.stdout+r.stderr, "admin") {
		t.Errorf("a conflict ends with %d:\n%s%s", r.code, r.stdout, r.stderr)
	}
	if got := u.ok("get", "group", "echo", "-o", "jsonpath=minInstances"); got != "2\n" {
		t.Errorf("after the conflict, minInstances is %q", got)
	}
	if diff := u.given(group("echo", 3), "diff", "-f", "-"); !strings.Contains(diff, "minInstances") {
		t.Errorf("diff prints\n%s", diff)
	}
	u.given(group("echo", 3), "apply", "--force", "-f", "-")
	if got := u.ok("get", "group", "echo", "-o", "jsonpath=minInstances"); got != "3\n" {
		t.Errorf("after --force, minInstances is %q", got)
	}
}

// numbers is a group whose instance prints a number for each line that it reads, in bursts.
const numbers = `kind: Group
name: count
command: n=0; while read go; do i=0; while [ $i -lt 200 ]; do i=$((i+1)); n=$((n+1)); echo "line $n"; done; done
minInstances: 1
memoryMb: 16
stopCommand: ""
shutdownGraceSeconds: 1
`

func TestLogsSurviveTheDeathOfGateways(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	first, second := cluster.AddGateway(t, c, admin, "first"), cluster.AddGateway(t, c, admin, "second")
	u := newUser(t)
	u.ok("login", "--username", "admin", "--password-file", c.PasswordFile(), "--name", "test", first.API(), second.API(), c.API())
	u.given(numbers, "apply", "--wait", "-f", "-")
	var lines await.Text
	cmd := u.command("logs", "count-1", "-f", "-n", "-1")
	cmd.Stdout = &lines
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for round, kill := range []func(){func() {}, first.Kill, second.Kill} {
		kill()
		admin.Do("POST", "/api/v1/services/count-1/command", map[string]string{"command": "go"}).OK(200)
		want := fmt.Sprintf("line %d\n", 200*(round+1))
		await.That(t, "the last line of the round", func() string {
			return await.Unless(strings.Contains(lines.String(), want), "%d bytes, and no %q", len(lines.String()), want)
		})
	}
	u.ok("stop", "count-1")
	if err := <-ended; err != nil {
		t.Errorf("logs -f of an instance that ended: %v", err)
	}
	for i, line := range strings.Split(strings.TrimSpace(lines.String()), "\n") {
		if line != fmt.Sprint("line ", i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
}

func TestCompletionInBash(t *testing.T) {
	t.Parallel()
	const library = "/usr/share/bash-completion/bash_completion"
	if _, err := os.Stat(library); err != nil {
		need(t, "bash-completion", err)
	}
	c := cluster.Start(t, cluster.Options{})
	u := newUser(t)
	u.logIn(c)
	u.given(group("echo", 2), "apply", "--wait", "-f", "-")
	for line, want := range map[string]string{
		"orrery describe instance ec": "echo-1 echo-2",
		"orrery restart --group ":     "echo",
		"orrery get inst":             "instance",
		"orrery cont":                 "context",
	} {
		words := strings.Split(line, " ")
		script := fmt.Sprintf(`source %s; source <(orrery completion bash)
compopt() { :; } # works only while a line is edited
COMP_LINE='%s' COMP_POINT=%d COMP_WORDS=(%s) COMP_CWORD=%d COMP_TYPE=9
[ "${COMP_LINE: -1}" = ' ' ] && COMP_WORDS+=('')
__start_orrery
echo "${COMPREPLY[@]%%%% *}"`, library, line, len(line), line, len(words)-1)
		cmd := exec.CommandContext(cluster.Bounded(t), "bash", "--norc", "-c", script)
		cmd.Env, cmd.Dir = u.env, u.home
		out, err := cmd.CombinedOutput()
		if got := strings.Join(strings.Fields(string(out)), " "); err != nil || got != want {
			t.Errorf("%q is completed with %q (%v), want %q", line, out, err, want)
		}
	}
}

// need skips a test without a program that a newcomer may miss, and fails it in CI.
func need(t *testing.T, what string, err error) {
	t.Helper()
	if os.Getenv("ORRERY_CI") == "1" {
		t.Fatalf("%s is missing: %v", what, err)
	}
	t.Skipf("%s is missing: %v", what, err)
}

func TestUpAndDown(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	standalone := cluster.Program(t, "./standalone") // beside orrery
	data := filepath.Join(u.home, "data")
	if up := u.ok("up", "--data", data, "--", "-listen", "127.0.0.1:0"); !strings.Contains(up, "http://127.0.0.1:") {
		t.Errorf("up prints %q; the program is %s", up, standalone)
	}
	t.Cleanup(func() {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), u.program, "down", "--data", data)
		cmd.Env = u.env
		_ = cmd.Run() // it has stopped already, unless the test failed
	})
	if status := u.ok("status", "-o", "jsonpath=readiness.status"); status != "UP\n" {
		t.Errorf("status says %q", status)
	}
	u.ok("up", "--data", data)
	u.ok("down", "--data", data)
	u.refused(5, "orrery up", "status")
}

func TestImportOfUniverse(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	u := newUser(t)
	u.logIn(c)
	tree := filepath.Join(cluster.Root(t), "cli", "internal", "importer", "testdata", "universe")
	before := u.ok("get", "groups", "-o", "json")
	u.ok("import", "universe", tree, "--dry-run")
	if after := u.ok("get", "groups", "-o", "json"); after != before {
		t.Errorf("a dry run changed the groups:\n%s", after)
	}
	// The tree lacks two templates that its lobby names.
	u.refused(1, "lobby/gone", "import", "universe", tree, "--yes")
	for _, name := range []string{"lobby/gone", "cloud/shared"} {
		dir := filepath.Join(u.home, name)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "motd.txt"), []byte("hello\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		u.ok("template", "push", name, dir)
	}
	u.ok("import", "universe", tree, "--yes")
	names := strings.Fields(u.ok("get", "groups", "-o", "name"))
	if len(names) < 4 {
		t.Errorf("imported groups: %v", names)
	}
	for _, name := range names {
		if got := u.ok("get", "group", name, "-o", "jsonpath=maintenance"); got != "true\n" {
			t.Errorf("imported group %s has maintenance %q", name, got)
		}
	}
	if again := u.ok("import", "universe", tree, "--yes"); strings.Contains(again, "created") || strings.Contains(again, "configured") {
		t.Errorf("a second import prints\n%s", again)
	}
}
