package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
)

// push publishes a template with files.
func (u *user) push(template string, files map[string]string) {
	u.t.Helper()
	dir := filepath.Join(u.t.TempDir(), template)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		u.t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			u.t.Fatal(err)
		}
	}
	u.ok("template", "push", template, dir)
}

// put writes a file of an instance, and returns what the command says about it.
func (u *user) put(instance, file, content string) string {
	u.t.Helper()
	r := u.run(content, "file", "put", instance, "-", file)
	if r.code != 0 {
		u.t.Fatalf("file put %s %s: exit code %d\n%s", instance, file, r.code, r.stderr)
	}
	return r.stderr
}

// cat fails the test unless a file of an instance has a content.
func (u *user) cat(instance, file, content string) {
	u.t.Helper()
	if got := u.ok("file", "cat", instance, file); got != content {
		u.t.Errorf("%s of %s is %q, want %q", file, instance, got, content)
	}
}

func testFiles(t *testing.T, c cluster.Cluster) {
	u := newUser(t)
	u.logIn(c)
	u.push("world", map[string]string{"motd.txt": "of the template\n", "keep.txt": "of the template\n"})
	u.given(group("world", 0)+"static: true\ntemplates: [world]\nprotectedPaths: [keep.txt]\n", "apply", "-f", "-")
	u.ok("start", "group", "world", "--wait")
	change := func() {
		t.Helper()
		u.put("world-1", "own.txt", "mine\n")
		u.ok("file", "mkdir", "world-1", "logs/old")
		u.ok("file", "mv", "world-1", "own.txt", "logs/old/other.txt")
		u.cat("world-1", "logs/old/other.txt", "mine\n")
		if got := u.ok("file", "ls", "world-1", "logs/old", "-o", "name"); got != "other.txt\n" {
			t.Errorf("logs/old has %q", got)
		}
		u.refused(4, "orrery file ls world-1", "file", "cat", "world-1", "own.txt")
		u.ok("file", "rm", "world-1", "logs/old/other.txt")
		u.refused(4, "other.txt", "file", "rm", "world-1", "logs/old/other.txt")
		u.ok("file", "rm", "world-1", "logs")
		u.refused(6, "exists already", "file", "mkdir", "world-1", "motd.txt")
		u.refused(1, "inside the instance's directory", "file", "put", "world-1", u.program, "../outside")
		u.refused(4, ".orrery-lock", "file", "cat", "world-1", ".orrery-lock")
	}
	change()
	// What a template has is replaced at the next start, unless the group protects it.
	if said := u.put("world-1", "motd.txt", "mine\n"); !strings.Contains(said, "motd.txt, that of the template replaces it when world-1 starts again") {
		t.Errorf("file put of a template's file says %q", said)
	}
	if said := u.put("world-1", "keep.txt", "mine\n"); strings.Contains(said, "replaces") {
		t.Errorf("file put of a protected file says %q", said)
	}
	u.ok("stop", "world-1", "--wait")
	u.cat("world-1", "motd.txt", "mine\n")
	change()
	u.ok("start", "world-1", "--wait")
	u.cat("world-1", "motd.txt", "of the template\n")
	u.cat("world-1", "keep.txt", "mine\n")
	// The content before is kept.
	if got := strings.Fields(u.ok("file", "versions", "world-1", "keep.txt", "-o", "name")); len(got) != 1 {
		t.Errorf("keep.txt has the versions %q", got)
	} else {
		u.ok("file", "restore", "world-1", got[0])
		u.cat("world-1", "keep.txt", "of the template\n")
	}
	u.given(group("fleeting", 1), "apply", "--wait", "-f", "-")
	u.refused(6, "static", "file", "mkdir", "fleeting-1", "logs")

	term := u.terminal("100", "30")
	term.editor()
	term.edit("orrery file edit world-1 motd.txt", func() {}, "s/template/editor/")
	term.awaits("motd.txt of world-1 written")
	u.cat("world-1", "motd.txt", "of the editor\n")
	term.edit("clear; orrery file edit world-1 motd.txt", func() { u.put("world-1", "motd.txt", "of the other\n") }, "s/editor/first/")
	term.awaits("motd.txt has changed since you read it")
	u.cat("world-1", "motd.txt", "of the other\n")
	term.keeps("of the first\n", "of the other\n")
}
