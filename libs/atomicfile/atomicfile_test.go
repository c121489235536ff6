package atomicfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/libs/atomicfile"
)

// read returns the content of a file, which only the user may read.
func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s has mode %v, %v; want 0600", name, info.Mode(), err)
	}
	return string(content)
}

func TestWriteReplacesAFileThatOthersCanRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte("old and longer"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(name, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if got := read(t, name); got != "new" {
		t.Errorf("the file has %q", got)
	}
}

func TestWriteKeepsASymbolicLink(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "dotfiles", "file"), filepath.Join(dir, "link")
	if err := os.Mkdir(filepath.Dir(target), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(target, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(link, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(link); err != nil || to != target {
		t.Errorf("the link points to %q, %v", to, err)
	}
	if got := read(t, target); got != "new" {
		t.Errorf("the file has %q", got)
	}
}

func TestAFailedWriteLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(filepath.Join(dir, "taken"), []byte("new")); err == nil {
		t.Error("a directory was replaced")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the directory has %v, %v", left, err)
	}
}
