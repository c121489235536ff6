package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
)

// editorScript is an editor: it shows the text, and carries out a command of sed that the user types.
const editorScript = `#!/bin/sh
cat "$1"
printf 'sed> '
read -r line </dev/tty
sed -i "$line" "$1"
clear
`

// editor makes the shell of the terminal use the editor.
func (term *terminal) editor() {
	term.u.t.Helper()
	path := filepath.Join(term.u.home, "editor")
	if err := os.WriteFile(path, []byte(editorScript), 0o755); err != nil {
		term.u.t.Fatal(err)
	}
	term.enter("export TMPDIR=" + term.u.home + " EDITOR=" + path)
}

// edit runs a command that opens the editor, does something while it is open, and leaves the editor
// after a command of sed.
func (term *terminal) edit(command string, meanwhile func(), change string) {
	term.u.t.Helper()
	term.enter(command)
	term.awaits("\nsed>")
	meanwhile()
	term.enter(change)
}

// keeps fails the test unless both sides of the conflict are in files that the screen names.
func (term *terminal) keeps(mine, theirs string) {
	term.u.t.Helper()
	term.awaits("diff ")
	screen := strings.ReplaceAll(term.tmux("capture-pane", "-J", "-p", "-t", "test"), "\n", " ")
	names := regexp.MustCompile(`diff (\S+) (\S+)`).FindStringSubmatch(screen)
	if names == nil {
		term.u.t.Fatalf("the screen names no two files: %s", screen)
	}
	for i, want := range []string{theirs, mine} {
		if got, err := os.ReadFile(names[i+1]); string(got) != want {
			term.u.t.Errorf("%s has %q, want %q: %v", names[i+1], got, want, err)
		}
	}
}

func testEdits(t *testing.T, c cluster.Cluster) {
	u := newUser(t)
	u.logIn(c)
	term := u.terminal("120", "200")
	term.editor()

	u.push("motd", map[string]string{"motd.txt": "first\n"})
	term.edit("clear; orrery template edit motd motd.txt", func() {}, "s/first/second/")
	term.awaits("template motd is at version")
	if got := u.ok("template", "cat", "motd", "motd.txt"); got != "second\n" {
		t.Errorf("after the edit the file has %q", got)
	}
	term.edit("clear; orrery template edit motd motd.txt", func() { u.push("motd", map[string]string{"motd.txt": "third\n"}) }, "s/second/mine/")
	term.keeps("mine\n", "third\n")
	if got := u.ok("template", "cat", "motd", "motd.txt"); got != "third\n" {
		t.Errorf("after the conflict the file has %q", got)
	}

	u.given(group("edited", 0), "apply", "-f", "-")
	field := func(name, want string) {
		t.Helper()
		if got := u.ok("get", "group", "edited", "-o", "jsonpath="+name); got != want+"\n" {
			t.Errorf("%s of the group is %q, want %q", name, got, want)
		}
	}
	admin := cluster.Login(t, c)
	other := func(memory int) {
		t.Helper()
		admin.Do("PATCH", "/api/v1/groups/edited", map[string]int{"memoryMb": memory}).OK(200)
	}
	// Another field than the other writer's: both changes are made once the user agrees.
	term.edit("clear; orrery edit group edited", func() { other(17) }, "s/maxInstances: 5/maxInstances: 6/")
	term.awaits("# Somebody changed it meanwhile")
	term.awaits("17 by admin")
	field("maxInstances", "5")
	term.enter("/Somebody changed/d")
	term.awaits("group edited changed")
	field("maxInstances", "6")
	field("memoryMb", "17")
	// The same field: both values are shown, and nothing is changed unless the user agrees.
	term.edit("clear; orrery edit group edited", func() { other(18) }, "s/memoryMb: 17/memoryMb: 19/")
	term.awaits("18 by admin; you: 17")
	term.awaits("19, which is in the text")
	term.enter("")
	term.awaits("group edited was not changed: somebody else changed it meanwhile")
	field("memoryMb", "18")
}
