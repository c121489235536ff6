package storetest

import (
	"os"
	"testing"
)

// Backup copies the data of a stopped etcd and returns where to.
func (e *Etcd) Backup(t testing.TB) string {
	t.Helper()
	e.mustBeDown(t)
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(e.dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Restore puts a copy of other data, of this etcd's past or of another etcd, in the
// place of a stopped etcd's. An empty directory makes it begin anew.
func (e *Etcd) Restore(t testing.TB, data string) {
	t.Helper()
	e.mustBeDown(t)
	e.dir = t.TempDir()
	if err := os.CopyFS(e.dir, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
}

func (e *Etcd) mustBeDown(t testing.TB) {
	t.Helper()
	if e.server != nil {
		t.Fatal("the test etcd runs: stop it first")
	}
}
