package store_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

// runReplica runs a replica until the test ends.
func runReplica(t *testing.T, r *store.Replica) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); _ = r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

// owns waits until a replica owns n shards.
func owns(t *testing.T, r *store.Replica, n int) {
	t.Helper()
	await.That(t, fmt.Sprintf("%s own %d shards", r.Self.Replica, n), func() string {
		got := r.Owned().Count()
		return await.Unless(got == n, "%d", got)
	})
}

func TestShardsClaimedWithALostAnswerAreOwned(t *testing.T) {
	t.Parallel()
	c, faults := storetest.Start(t).Faulty(t)
	lost := faults.LoseAnswer(keys.Shards("scheduler").String(), true)
	r := &store.Replica{
		Client: c, Self: cluster.Session{Service: "scheduler", Replica: "a"}, Claim: true, Log: slog.New(slog.DiscardHandler),
	}
	runReplica(t, r)
	<-lost
	faults.Heal()
	owns(t, r, fleet.ShardCount)

	f, ok := r.Owned().Fence("lobby")
	if !ok {
		t.Fatal("no fence for an owned shard")
	}
	if _, err := c.Commit(t.Context(), store.Txn{
		Fences: []store.Fence{f}, Writes: []store.Write{store.Create(keys.Alloc("n1"), fleet.Alloc{Node: "n1"})},
	}); err != nil {
		t.Errorf("a write under the fence: %v", err)
	}
}

func TestFailedClaimsAreRetried(t *testing.T) {
	t.Parallel()
	c, faults := storetest.Start(t).Faulty(t)
	faults.Refuse(keys.Shards("scheduler").String())
	r := &store.Replica{
		Client: c, Self: cluster.Session{Service: "scheduler", Replica: "a"}, Claim: true, Log: slog.New(slog.DiscardHandler),
	}
	runReplica(t, r)
	owns(t, r, fleet.ShardCount)
}

func TestSecondReplicaClaimsReleasedShards(t *testing.T) {
	t.Parallel()
	c := storetest.New(t)
	replica := func(name string) *store.Replica {
		return &store.Replica{Client: c, Self: cluster.Session{Service: "enforcer", Replica: name}, Claim: true, Log: slog.New(slog.DiscardHandler)}
	}
	a, b := replica("a"), replica("b")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = a.Run(ctx) }()
	owns(t, a, fleet.ShardCount)
	runReplica(t, b)
	before := a.Owned().Epoch()
	stop()
	<-done
	owns(t, b, fleet.ShardCount)
	if b.Owned().Epoch() <= before {
		t.Errorf("epoch %d after %d: it must grow", b.Owned().Epoch(), before)
	}
}

// seen is a log handler that passes on all warnings.
type seen struct {
	slog.Handler
	records chan struct{}
}

func (s seen) Handle(_ context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return nil
	}
	select {
	case s.records <- struct{}{}:
	default:
	}
	return nil
}

func (s seen) Enabled(context.Context, slog.Level) bool { return true }

func TestReplicaWaitsForSessionOfSameName(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	c := etcd.Client(t)
	complained := make(chan struct{}, 1)
	r := &store.Replica{
		Client: c, Self: cluster.Session{Service: "scheduler", Replica: "a"}, TTL: time.Second, Claim: true,
		Log: slog.New(seen{slog.DiscardHandler, complained}),
	}
	runReplica(t, r)
	owns(t, r, fleet.ShardCount)

	key := keys.Session("scheduler", "a")
	var stranger *store.Session
	for deadline := time.Now().Add(await.Patience); stranger == nil; { // the replica may be back earlier
		var err error
		if stranger, err = store.OpenSession(t.Context(), c, key, cluster.Session{Service: "scheduler", Replica: "a", Version: "other"}, time.Minute, true); err != nil && time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	defer stranger.Close(context.WithoutCancel(t.Context()))
	select {
	case <-complained:
	case <-stranger.Done():
		t.Fatal("the stranger's session was ended")
	case <-time.After(await.Patience):
		t.Fatal("the replica said nothing")
	}
	if s, err := store.Get(t.Context(), c, key); err != nil || s.Version != "other" {
		t.Errorf("under the name stands %+v, %v", s, err)
	}
	if n := r.Owned().Count(); n != 0 {
		t.Errorf("%d shards owned without a session", n)
	}
}

func TestRestartedReplicaWaitsForPredecessor(t *testing.T) {
	t.Parallel()
	c := storetest.New(t)
	self := cluster.Session{Service: "scheduler", Replica: "a"}
	left, err := store.OpenSession(t.Context(), c, keys.Session("scheduler", "a"), self, 3*time.Second, false)
	if err != nil {
		t.Fatal(err)
	}
	left.Abandon() // as if killed
	neighbour, err := store.OpenSession(t.Context(), c, keys.Session("scheduler", "ab"), cluster.Session{}, time.Minute, false)
	if err != nil {
		t.Fatal(err)
	}
	complaints := make(chan struct{}, 16)
	r := &store.Replica{Client: c, Self: self, Claim: true, Log: slog.New(seen{slog.DiscardHandler, complaints})}
	runReplica(t, r)
	for deadline := time.Now().Add(await.Patience); r.Owned().Count() == 0; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never got its name back")
		}
	}
	neighbour.Close(t.Context())
	if n := len(complaints); n != 1 {
		t.Errorf("it complained %d times, want once", n)
	}
}

func TestEqualForeignRecordIsNoProofOfCommit(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	c, faults := etcd.Faulty(t)
	alloc := store.Create(keys.Alloc("n1"), fleet.Alloc{Node: "n1"})
	if _, err := etcd.Client(t).Commit(t.Context(), store.Txn{Writes: []store.Write{alloc}}); err != nil {
		t.Fatal(err)
	}
	faults.Refuse(keys.Alloc("n1").String())
	_, err := c.Commit(t.Context(), store.Txn{Writes: []store.Write{alloc, store.Create(keys.Alloc("n2"), fleet.Alloc{Node: "n2"})}})
	if !errs.Is(err, errs.Unavailable) {
		t.Errorf("err = %v, want Unavailable: the transaction did not happen", err)
	}
}

func TestALostAnswerIsReadBack(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	c, faults := etcd.Faulty(t)
	if _, err := c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Create(keys.Alloc("old"), fleet.Alloc{Node: "old"})}}); err != nil {
		t.Fatal(err)
	}
	old, err := store.Get(t.Context(), c, keys.Alloc("old"))
	if err != nil {
		t.Fatal(err)
	}
	faults.LoseAnswer(keys.Alloc("n1").String(), false)
	rev, err := c.Commit(t.Context(), store.Txn{Writes: []store.Write{
		store.Remove(keys.Alloc("old"), old.ModRev),
		store.Create(keys.Alloc("n1"), fleet.Alloc{Node: "n1"}), store.Create(keys.Alloc("n2"), fleet.Alloc{Node: "n2"}),
	}})
	have, getErr := store.Get(t.Context(), c, keys.Alloc("n2"))
	if err != nil || getErr != nil || have.ModRev != rev {
		t.Errorf("revision %d, %v; n2 stands at %d, %v", rev, err, have.ModRev, getErr)
	}
}
