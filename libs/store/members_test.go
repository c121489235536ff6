package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

func TestSessionsOutliveTheLossOfLeaders(t *testing.T) {
	t.Parallel()
	etcd := storetest.StartCluster(t, 3)
	c := etcd.Client(t)
	k := keys.NodeSession("n1")
	s, err := store.OpenSession(t.Context(), c, k, fleet.NodeSession{Node: "n1"}, 3*time.Second, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.WithoutCancel(t.Context()))
	for i := range 6 {
		before := s.Deadline()
		dead := etcd.Leader(t)
		if i%2 == 0 {
			etcd.Kill(dead)
			etcd.Leader(t)
			etcd.Restart(t, dead)
		} else {
			etcd.MoveLeader(t, (dead+1)%3)
		}
		again(t, "a renewal under the next leader", func(context.Context) error {
			if s.Deadline().Equal(before) {
				return errors.New("none yet")
			}
			return nil
		})
	}
	select {
	case <-s.Done():
		t.Error("the session ended")
	default:
	}
	got, err := store.Get(t.Context(), c, k)
	if err != nil || got.CreateRev != s.Fence().Epoch() {
		t.Errorf("under its key stands %+v, %v; its epoch is %d", got, err, s.Fence().Epoch())
	}
}

// commitAnyway writes a record despite failing attempts. After an unknown outcome it reads the record
// before it tries again, like all writers.
func commitAnyway(ctx context.Context, c *store.Client, id fleet.NodeID) error {
	k := keys.Alloc(id)
	unknown := false
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, 150*time.Millisecond)
		rev, err := c.Commit(attempt, store.Txn{Writes: []store.Write{store.Create(k, fleet.Alloc{Node: id})}})
		cancel()
		if err == nil {
			got, err := store.Get(ctx, c, k)
			for errs.Is(err, errs.Unavailable) && ctx.Err() == nil {
				got, err = store.Get(ctx, c, k)
			}
			if err != nil || got.ModRev != rev {
				return fmt.Errorf("%s was said to be written at %d and stands at %d: %w", id, rev, got.ModRev, err)
			}
			return nil
		}
		switch {
		case errs.Is(err, errs.AlreadyExists) && !unknown:
			return fmt.Errorf("%s was written by nobody else: %w", id, err)
		case errs.Is(err, errs.AlreadyExists):
			return nil // the unknown attempt succeeded
		}
		unknown = true
	}
	return ctx.Err()
}

func TestWritesDuringLeaderLossHappenOnce(t *testing.T) {
	t.Parallel()
	etcd := storetest.StartCluster(t, 3)
	c := etcd.Client(t)
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	writing, stop := context.WithCancel(ctx)
	type result struct {
		written int
		err     error
	}
	const writers = 4
	results := make(chan result, writers)
	for w := range writers {
		go func() {
			var r result
			for r.err == nil && writing.Err() == nil {
				if r.err = commitAnyway(ctx, c, fleet.NodeID(fmt.Sprintf("w%d-%d", w, r.written))); r.err == nil {
					r.written++
				}
			}
			results <- r
		}()
	}
	for i := range 4 {
		dead := etcd.Leader(t)
		println("kill", i, dead)
		etcd.Kill(dead)
		etcd.Leader(t)
		println("restart")
		etcd.Restart(t, dead)
		println("restarted")
		etcd.MoveLeader(t, i%3)
	}
	stop()
	total := 0
	for range writers {
		r := <-results
		if r.err != nil && !errors.Is(r.err, context.Canceled) {
			t.Error(r.err)
		}
		total += r.written
	}
	resp, err := etcd.Raw(t).Get(t.Context(), keys.Root+"allocs/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) != total {
		t.Errorf("%d records stand, %d were written", len(resp.Kvs), total)
	}
	for _, kv := range resp.Kvs {
		if kv.Version != 1 {
			t.Errorf("%s was written %d times", kv.Key, kv.Version)
		}
	}
}
