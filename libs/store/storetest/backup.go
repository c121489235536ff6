package storetest

import (
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
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

// elections are more than a test's etcd had before, each at a start.
const elections = 5

// RestoreBumped is Restore as etcdutl does it with --bump-revision and --mark-compacted: the
// revision is higher by so many, and there is no history. Elections have raised the term as well,
// so that neither revision nor term tells clients of the restore.
func (e *Etcd) RestoreBumped(t testing.TB, data string, by int) {
	t.Helper()
	e.mustBeDown(t)
	e.dir = filepath.Join(t.TempDir(), "restored")
	peer := config(e.dir)
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: filepath.Join(data, "member", "snap", "db"), SkipHashCheck: true, OutputDataDir: e.dir,
		Name: peer.Name, PeerURLs: []string{peerURL}, InitialCluster: peer.Name + "=" + peerURL, InitialClusterToken: peer.InitialClusterToken,
		RevisionBump: uint64(by), MarkCompacted: true,
	})
	if err != nil {
		t.Fatalf("restoring: %v", err)
	}
	for range elections {
		e.serve(t).Close()
	}
}

func (e *Etcd) mustBeDown(t testing.TB) {
	t.Helper()
	if e.server != nil {
		t.Fatal("the test etcd runs: stop it first")
	}
}
