package store_test

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

func TestEveryEndpointReportsItsStatus(t *testing.T) {
	t.Parallel()
	cluster := storetest.StartCluster(t, 3)
	c := cluster.Client(t)
	lost := (cluster.Leader(t) + 1) % 3
	cluster.Kill(lost)
	leaders := 0
	for n, s := range c.EndpointStatuses(t.Context()) {
		if s.Endpoint != cluster.Endpoints()[n] {
			t.Errorf("endpoint %d is %s", n, s.Endpoint)
		}
		if n == lost {
			if s.Err == nil || s.Version != "" {
				t.Errorf("the dead member: %+v", s)
			}
			continue
		}
		if s.Err != nil || s.Version == "" || s.DBSize == 0 || s.DBSizeInUse == 0 || s.Revision == 0 || s.RaftTerm == 0 || s.Latency <= 0 || len(s.Alarms) > 0 {
			t.Errorf("%+v", s)
		}
		if s.Leader {
			leaders++
		}
	}
	if leaders != 1 {
		t.Errorf("there are %d leaders", leaders)
	}
}

func TestTheCompactedRevisionIsKnown(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	c := etcd.Client(t)
	if _, err := c.Join(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if rev, err := c.CompactedRevision(t.Context()); err != nil || rev != 0 {
		t.Errorf("before a compaction: %d, %v", rev, err)
	}
	rev, err := c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Create(keys.Group("g"), fleet.Group{})}})
	if err != nil {
		t.Fatal(err)
	}
	etcd.Compact(t)
	if got, err := c.CompactedRevision(t.Context()); err != nil || got < rev {
		t.Errorf("after a compaction at %d or later: %d, %v", rev, got, err)
	}
}
