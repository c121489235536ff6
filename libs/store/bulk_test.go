package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

func allocPart(n int, rev int64) store.Part {
	id := fleet.NodeID(fmt.Sprintf("n%d", n))
	return store.Part{Writes: []store.Write{store.Replace(keys.Alloc(id), fleet.Alloc{Node: id}, rev)}}
}

func TestFailedPartDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	c := storetest.New(t)
	taken, err := c.Commit(t.Context(), store.Txn{Writes: allocPart(1, 0).Writes})
	if err != nil {
		t.Fatal(err)
	}
	parts := []store.Part{allocPart(0, 0), allocPart(1, 0), allocPart(2, 0), {
		Guards: []store.Guard{store.Missing(keys.Alloc("n1"))},
		Writes: allocPart(3, 0).Writes,
	}}
	done, rev, err := c.CommitBulk(t.Context(), store.Bulk{Parts: parts})
	if err != nil || !slices.Equal(done, []bool{true, false, true, false}) {
		t.Fatalf("done %v at %d, %v", done, rev, err)
	}
	for n, want := range []int64{rev, taken, rev, 0} {
		a, err := store.Get(t.Context(), c, keys.Alloc(fleet.NodeID(fmt.Sprintf("n%d", n))))
		if a.ModRev != want || want == 0 != errs.Is(err, errs.NotFound) {
			t.Errorf("n%d stands at %d, want %d (%v)", n, a.ModRev, want, err)
		}
	}
}

func TestALostFenceRefusesEveryPart(t *testing.T) {
	t.Parallel()
	c := storetest.New(t)
	shard := keys.Shard("scheduler", 1)
	rev, err := c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Create(shard, cluster.Shard{})}})
	if err != nil {
		t.Fatal(err)
	}
	for _, epoch := range []int64{0, rev - 1} {
		b := store.Bulk{Fences: []store.Fence{store.FenceOf(shard, epoch)}, Parts: []store.Part{allocPart(1, 0)}}
		if done, _, err := c.CommitBulk(t.Context(), b); !errs.Is(err, errs.Fenced) || done != nil {
			t.Errorf("epoch %d: done %v, %v, want Fenced", epoch, done, err)
		}
	}
	b := store.Bulk{Fences: []store.Fence{store.FenceOf(shard, rev)}, Parts: []store.Part{allocPart(1, 0)}}
	if done, _, err := c.CommitBulk(t.Context(), b); err != nil || !done[0] {
		t.Errorf("the owner: done %v, %v", done, err)
	}
}

func TestBulkLimitsFitDefaultEtcd(t *testing.T) {
	t.Parallel()
	c := storetest.New(t)
	limit, size := c.BulkLimits()
	var b store.Bulk
	for n := range limit {
		p := allocPart(n, 0)
		for len(p.Guards) < size-1 {
			p.Guards = append(p.Guards, store.Missing(keys.Group(fleet.GroupName(fmt.Sprintf("g%d", len(p.Guards))))))
		}
		b.Parts = append(b.Parts, p)
	}
	for n := range limit - 1 {
		shard := keys.Shard("scheduler", n)
		rev, err := c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Create(shard, cluster.Shard{})}})
		if err != nil {
			t.Fatal(err)
		}
		b.Fences = append(b.Fences, store.FenceOf(shard, rev))
	}
	done, _, err := c.CommitBulk(t.Context(), b)
	if err != nil || slices.Contains(done, false) {
		t.Fatalf("done %v, %v", done, err)
	}
	b.Parts[0].Guards = append(b.Parts[0].Guards, store.Missing(keys.Group("more")))
	if _, _, err := c.CommitBulk(t.Context(), b); !errs.Is(err, errs.TooLarge) {
		t.Errorf("one comparison more: %v", err)
	}
}

func TestBulkIsRefusedInAnotherCluster(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	c := etcd.Client(t)
	if _, err := c.Join(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	etcd.Clear(t)
	var foreign *store.ForeignError
	done, _, err := c.CommitBulk(t.Context(), store.Bulk{Parts: []store.Part{allocPart(1, 0)}})
	if !errors.As(err, &foreign) || !errs.Is(err, errs.Unavailable) || done != nil {
		t.Errorf("done %v, %v, want a ForeignError", done, err)
	}
}
