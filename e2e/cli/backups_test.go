package cli_test

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// testBackups makes, restores and deletes backups of a server that can pause its saving, as a Minecraft server does.
func testBackups(t *testing.T, c cluster.Cluster) {
	u := newUser(t)
	u.logIn(c)
	u.push("realm", map[string]string{"level.txt": "old\n"})
	document := strings.Replace(group("realm", 1), "exec cat", `while read line; do [ "$line" != crash ] || exit 1; echo "got $line"; done`, 1)
	u.given(document+"static: true\ntemplates: [realm]\nprotectedPaths: [level.txt]\n", "apply", "--wait", "-f", "-")
	ids := func() []string { return strings.Fields(u.ok("backup", "list", "realm-1", "-o", "name")) }
	state := func() string { return u.ok("backup", "list", "realm-1", "-o", "jsonpath={.items[0].state}") }

	u.ok("backup", "create", "realm-1", "--dry-run")
	u.refused(2, "--before", "backup", "create", "realm-1", "--until", "Saved the game")
	if got := ids(); len(got) != 0 {
		t.Fatalf("after a dry run and a refusal, the backups are %q", got)
	}
	said := u.ok("backup", "create", "realm-1", "--before", "save-off", "--before", "save-all flush", "--until", "got save-all flush", "--after", "save-on", "--wait")
	if !strings.Contains(said, "is complete") || !strings.Contains(said, "in an archive of") {
		t.Errorf("backup create --wait says %q", said)
	}
	await.That(t, "the lines of the backup", func() string {
		log := u.ok("logs", "realm-1")
		off, all, on := strings.Index(log, "got save-off"), strings.Index(log, "got save-all flush"), strings.Index(log, "got save-on")
		return await.Unless(off >= 0 && off < all && all < on, "%s", log)
	})
	first := ids()
	if len(first) != 1 || state() != "COMPLETE\n" {
		t.Fatalf("the backups are %q, the state is %s", first, state())
	}

	u.put("realm-1", "level.txt", "new\n")
	u.refused(6, "orrery freeze realm-1 && orrery stop realm-1 --wait", "backup", "restore", "realm-1", first[0], "--yes")
	u.ok("freeze", "realm-1")
	u.ok("stop", "realm-1", "--wait")
	u.refused(2, "--yes", "backup", "restore", "realm-1", first[0])
	u.refused(4, "orrery backup list realm-1", "backup", "restore", "realm-1", "20200101-000000-none", "--yes")
	u.ok("backup", "restore", "realm-1", first[0], "--dry-run")
	u.cat("realm-1", "level.txt", "new\n")
	if said := u.ok("backup", "restore", "realm-1", first[0], "--yes", "--wait"); !strings.Contains(said, "kept on the node for a day") {
		t.Errorf("backup restore says %q", said)
	}
	u.cat("realm-1", "level.txt", "old\n")
	u.put("realm-1", "level.txt", "newer\n")
	term := u.terminal("100", "30")
	term.enter("orrery backup restore realm-1 " + first[0])
	term.awaits("[y/N]")
	term.enter("n")
	term.awaits("nothing was changed")
	u.cat("realm-1", "level.txt", "newer\n")
	term.enter("clear; orrery backup restore realm-1 " + first[0] + " --wait")
	term.awaits("[y/N]")
	term.enter("y")
	term.awaits("is restored")
	u.cat("realm-1", "level.txt", "old\n")
	u.ok("unfreeze", "realm-1")
	u.ok("wait", "group", "realm", "--for", "ready")
	u.cat("realm-1", "level.txt", "old\n")

	// Without --wait it returns at once. --keep removes the oldest.
	u.ok("backup", "create", "realm-1", "--keep", "1")
	await.That(t, "one backup, which is another one", func() string {
		got := ids()
		return await.Unless(len(got) == 1 && got[0] != first[0] && state() == "COMPLETE\n", "%q", got)
	})
	second := ids()[0]
	u.refused(4, "orrery backup list realm-1", "backup", "delete", "realm-1", first[0], "--yes")
	u.refused(2, "--yes", "backup", "delete", "realm-1", second)
	u.ok("backup", "delete", "realm-1", second, "--dry-run")
	u.ok("backup", "delete", "realm-1", second, "--yes")
	if got := u.run("", "backup", "list", "realm-1"); got.code != 0 || got.stdout != "" {
		t.Errorf("after the deletion, the list is %q, exit code %d", got.stdout, got.code)
	}

	// A server that ends instead of answering makes the backup fail. The list says why.
	u.refused(1, "failed: the server ended", "backup", "create", "realm-1", "--before", "crash", "--until", "never printed", "--wait")
	if state() != "FAILED\n" {
		t.Errorf("the failed backup is %s", state())
	}
	u.given(group("fleeting-realm", 1), "apply", "--wait", "-f", "-")
	u.refused(6, "static", "backup", "create", "fleeting-realm-1")
	u.refused(6, "static", "backup", "list", "fleeting-realm-1")
	u.refused(4, "did you mean realm-1?", "backup", "create", "realm-2")
}
