package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// interrupted presses Ctrl-C once the command waits. The command must say what it did, the last state,
// and what continues.
func (u *user) interrupted(did, waits, continues string, args ...string) {
	u.t.Helper()
	cmd := u.start(args...)
	cmd.awaits("what it waits for", func(_, stderr string) bool { return strings.Contains(stderr, waits) })
	if err := cmd.cmd.Process.Signal(os.Interrupt); err != nil {
		u.t.Fatal(err)
	}
	r := cmd.wait()
	if r.code != 130 || !strings.Contains(r.stdout+r.stderr, did) {
		u.t.Errorf("orrery %s: exit code %d, want 130 with %q\n%s%s", strings.Join(args, " "), r.code, did, r.stdout, r.stderr)
	}
	for _, text := range []string{"orrery: interrupted\n", "the last state: ", continues} {
		if !strings.Contains(r.stderr, text) {
			u.t.Errorf("orrery %s does not say %q:\n%s%s", strings.Join(args, " "), text, r.stdout, r.stderr)
		}
	}
}

// stubborn is a group whose instance does not stop while a file exists.
func stubborn(name, file, more string) string {
	command := fmt.Sprintf("trap told=1 TERM; while [ -z \"$told\" ] || [ -e %s ]; do sleep 0.1; done", file)
	return strings.NewReplacer("exec cat", command, "shutdownGraceSeconds: 1", "shutdownGraceSeconds: 600").Replace(group(name, 1)) + more
}

func TestInterruptedCommandsContinueOnTheServer(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	cluster.AddNode(t, c, admin, cluster.NodeOptions{ID: "node-2"})
	u := newUser(t)
	u.logIn(c)
	hold := filepath.Join(u.home, "hold")
	holding := func(on bool) {
		t.Helper()
		err := os.Remove(hold)
		if on {
			err = os.WriteFile(hold, nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = os.Remove(hold) })

	holding(true)
	u.given(stubborn("world", hold, "static: true\nnodes: [node-1, node-2]\n"), "apply", "--wait", "-f", "-")
	from, to := strings.TrimSpace(u.ok("get", "instance", "world-1", "-o", "jsonpath=node")), "node-2"
	if from == to {
		to = "node-1"
	}
	u.interrupted("moving instance world-1 from "+from+" to "+to, "STOPPING", "the move continues: orrery move world-1 --cancel ends it",
		"move", "world-1", "--to", to, "--grace", "0s", "--wait")
	holding(false)
	await.That(t, "the end of the move", func() string {
		got := u.ok("get", "instances", "--filter", "id=world-1,node="+to+",state=RUNNING,move.step=DONE", "-o", "name")
		return await.Unless(got == "world-1\n", "%s", u.ok("describe", "instance", "world-1"))
	})

	holding(true)
	u.interrupted("node "+to+" is being drained", "1 instance left", "the drain continues: orrery undrain ends it",
		"drain", "node", to, "--grace", "1h", "--wait")
	holding(false)
	u.ok("wait", "node", to, "--for", "drained")
	u.ok("undrain", to)

	holding(true)
	u.given(stubborn("lobby", hold, ""), "apply", "--wait", "-f", "-")
	u.interrupted("rollout 1 of group lobby", "0 of 1 replaced", "the rollout continues by itself", "rollout", "start", "lobby", "--wait")
	u.interrupted("", "0 of 1 replaced", "the rollout continues by itself: orrery rollout status lobby --watch follows it, orrery rollout cancel lobby ends it",
		"rollout", "status", "lobby", "--watch")
	holding(false)
	if got := u.ok("rollout", "status", "lobby", "--watch"); !strings.Contains(got, "COMPLETED") {
		t.Errorf("after the rollout its status is\n%s", got)
	}
}
