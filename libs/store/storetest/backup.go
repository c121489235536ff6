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

// RestoreBumped is Restore with --bump-revision and --mark-compacted: when it runs again
// its revision is higher by so many, and it has no history.
func (e *Etcd) RestoreBumped(t testing.TB, data string, by int) {
	t.Helper()
	e.Restore(t, data)
	e.bump = by
}

// raise raises the revision as RestoreBumped asked for, before any client is let in.
func (e *Etcd) raise(t testing.TB) {
	t.Helper()
	if e.bump == 0 {
		return
	}
	for range e.bump {
		if _, err := e.inner.Put(t.Context(), "bump", ""); err != nil {
			t.Fatalf("raising the revision: %v", err)
		}
	}
	if _, err := e.inner.Delete(t.Context(), "bump"); err != nil {
		t.Fatalf("raising the revision: %v", err)
	}
	e.bump = 0
	e.Compact(t)
}

func (e *Etcd) mustBeDown(t testing.TB) {
	t.Helper()
	if e.server != nil {
		t.Fatal("the test etcd runs: stop it first")
	}
}
