package storetest

import (
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// Backup copies the data of a stopped etcd and returns the directory of the copy.
func (e *Etcd) Backup(t testing.TB) string {
	t.Helper()
	e.mustBeDown(t)
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(e.dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Restore replaces the data of a stopped etcd with a copy of other data, from its own past or from
// another etcd. An empty directory gives an empty etcd.
func (e *Etcd) Restore(t testing.TB, data string) {
	t.Helper()
	e.mustBeDown(t)
	e.dir = t.TempDir()
	if err := os.CopyFS(e.dir, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
}

// elections is higher than the number of elections of a test's etcd. Each start causes one.
const elections = 5

// RestoreBumped is Restore as done by etcdutl with --bump-revision and --mark-compacted: the
// revision is increased by by, and there is no history. Elections increase the term too, so
// neither revision nor term reveals the restore to clients.
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
