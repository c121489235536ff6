package storetest_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestClusterSurvivesOneMember(t *testing.T) {
	etcd := storetest.StartCluster(t, 3)
	c := etcd.Client(t)
	write := func(name fleet.GroupName, within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		_, err := c.Commit(ctx, store.Txn{Writes: []store.Write{store.Create(keys.Group(name), fleet.Group{})}})
		return err
	}
	must := func(name fleet.GroupName) {
		t.Helper()
		var err error
		for deadline := time.Now().Add(await.Patience); time.Now().Before(deadline); {
			if err = write(name, time.Second); err == nil {
				return
			}
		}
		t.Fatalf("writing %s: %v", name, err)
	}
	must("whole")
	first := etcd.Leader(t)
	etcd.MoveLeader(t, (first+1)%3)
	if now := etcd.Leader(t); now == first {
		t.Errorf("member %d leads still", now)
	}
	etcd.Kill(etcd.Leader(t))
	must("two")
	dead := etcd.Leader(t)
	etcd.Kill(dead)
	if err := write("one", 300*time.Millisecond); err == nil {
		t.Error("one member of three took a write")
	}
	etcd.Restart(t, dead)
	must("again")
}
