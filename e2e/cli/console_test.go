package cli_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
)

// numbered fails the test unless a text has the lines 1 to n in their order.
func numbered(t *testing.T, what, text string, n int) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines {
		if line != fmt.Sprint("line ", i+1) {
			t.Errorf("%s: line %d is %q", what, i+1, line)
			return
		}
	}
	if len(lines) != n {
		t.Errorf("%s: %d lines, want %d", what, len(lines), n)
	}
}

func TestConsolesSurviveTheDeathOfTheAgent(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	node := cluster.AddNode(t, c, admin, cluster.NodeOptions{ID: "node-2"})
	u := newUser(t)
	u.logIn(c)
	// The server prints what the test writes into a pipe, also while there is no agent.
	path := filepath.Join(cluster.OpenDir(t), "pipe")
	if err := errors.Join(syscall.Mkfifo(path, 0o600), os.Chmod(path, 0o644)); err != nil { // instances run as other users
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pipe.Close() })
	u.given(strings.Replace(group("count", 1), "exec cat", "exec cat "+path, 1)+"nodes: [node-2]\n", "apply", "--wait", "-f", "-")
	logs := u.start("logs", "count-1", "-f", "-n", "-1")
	attach := u.prepare("attach", "count-1", "-n", "1000")
	typed, err := attach.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	attach.begin()
	written := 0
	write := func() {
		t.Helper()
		for range 100 {
			written++
			if _, err := fmt.Fprintf(pipe, "line %d\n", written); err != nil {
				t.Fatal(err)
			}
		}
	}
	seen := func(stdout, _ string) bool { return strings.Contains(stdout, fmt.Sprintf("line %d\n", written)) }
	for range 3 {
		write()
		logs.awaits("the lines before", seen)
		write()
		node.Kill()
		write()
		if err := node.Start(); err != nil {
			t.Fatal(err)
		}
		write()
		node.AwaitOnline(admin)
		write()
		logs.awaits("the lines after", seen)
		attach.awaits("the lines after", seen)
	}
	u.ok("stop", "count-1")
	for what, r := range map[string]result{"logs -f": logs.wait(), "attach": attach.wait()} {
		if r.code != 0 {
			t.Errorf("%s of an instance that ended: exit code %d\n%s", what, r.code, r.stderr)
		}
		numbered(t, what, r.stdout, written)
	}
	_ = typed.Close()
}
