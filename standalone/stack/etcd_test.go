package stack

import (
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

func TestTheEmbeddedEtcdBoundsItsHistoryAndItsDatabase(t *testing.T) {
	e, err := startEtcd(t.Context(), Options{DataDir: t.TempDir(), UnsafeNoFsync: true}.withDefaults(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer e.stop()
	if mode, kept := e.server.Server.Cfg.AutoCompactionMode, e.server.Server.Cfg.AutoCompactionRetention; mode != embed.CompactorModePeriodic || kept != 10*time.Minute {
		t.Errorf("it compacts by mode %q and keeps %v of history, want periodic and 10m", mode, kept)
	}
	if quota := e.server.Server.Cfg.QuotaBackendBytes; quota != 4<<30 {
		t.Errorf("its quota is %d bytes, want 4 GiB", quota)
	}
	if mb := e.server.Server.Cfg.BootstrapDefragThresholdMegabytes; mb != 256 {
		t.Errorf("it defragments at its start to free %d MB, want 256", mb)
	}
}
