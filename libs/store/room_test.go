package store_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

func TestUncompactedHistoryIsAWarning(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	c := etcd.Client(t)
	made := time.Unix(1e9, 0)
	if _, err := c.Join(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Create(keys.Group("g"), fleet.Group{})}}); err != nil {
		t.Fatal(err)
	}
	warned := func(age time.Duration) bool {
		t.Helper()
		warnings, err := c.RoomWarnings(t.Context(), made.Add(age))
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "--auto-compaction-retention=10m") })
	}
	if warned(time.Hour) {
		t.Error("a young cluster is warned about")
	}
	if !warned(4 * time.Hour) {
		t.Error("an old cluster with all of its history is not warned about")
	}
	etcd.Compact(t)
	if warned(4 * time.Hour) {
		t.Error("it is warned about after a compaction")
	}
}

func TestAlarmAndNearlyFullQuotaAreWarnings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		status *etcdserverpb.StatusResponse
		want   string
	}{
		{"half of the quota", &etcdserverpb.StatusResponse{DbSize: 1 << 30, DbSizeQuota: 2 << 30}, ""},
		{"most of the quota", &etcdserverpb.StatusResponse{DbSize: 1900 << 20, DbSizeInUse: 100 << 20, DbSizeQuota: 2 << 30}, "has used 1900 of the 2048 MiB of its quota, 100 MiB"},
		{"an etcd that does not tell its quota", &etcdserverpb.StatusResponse{DbSize: 1900 << 20}, ""},
		{"an alarm", &etcdserverpb.StatusResponse{Errors: []string{"alarm: NOSPACE"}}, "NOSPACE"},
	} {
		got := strings.Join(store.MemberWarnings("e", (*clientv3.StatusResponse)(c.status)), "; ")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
