package store_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/telemetry"
)

const service = "scheduler"

// player is a replica with its own connection that runs until it is stopped or the test ends.
type player struct {
	*store.Replica
	t      *testing.T
	faults *storetest.Faults
	reg    *prometheus.Registry
	wrote  atomic.Int64 // for tests that make it write
	stop   func()
}

func play(t *testing.T, etcd *storetest.Etcd, name string, ttl time.Duration) *player {
	t.Helper()
	c, faults := etcd.Faulty(t)
	p := &player{t: t, faults: faults, reg: prometheus.NewRegistry(), Replica: &store.Replica{
		Client: c, Self: cluster.Session{Service: service, Replica: name}, TTL: ttl, Claim: true, Log: slog.New(slog.DiscardHandler),
	}}
	m := telemetry.NewMetrics(p.reg, service)
	p.Export(m)
	if err := m.Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = p.Run(ctx) })
	p.stop = func() { cancel(); running.Wait() }
	t.Cleanup(func() { faults.Heal(); p.stop() })
	return p
}

// figure returns the value of one of the replica's metrics, by the end of its name and label.
func (p *player) figure(name string) float64 {
	p.t.Helper()
	families, err := p.reg.Gather()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			full := f.GetName()
			for _, l := range m.GetLabel() {
				full += " " + l.GetValue()
			}
			if full == "orrery_scheduler_"+name {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	p.t.Fatalf("no metric %s", name)
	return 0
}

func (p *player) expect(figures map[string]float64) {
	p.t.Helper()
	for name, want := range figures {
		if got := p.figure(name); got != want {
			p.t.Errorf("%s: %s is %v, want %v", p.Self.Replica, name, got, want)
		}
	}
}

// until waits for a condition.
func (p *player) until(what string, ok func() bool) {
	p.t.Helper()
	await.That(p.t, p.Self.Replica+" "+what, func() string {
		if ok() {
			return ""
		}
		return fmt.Sprintf("it owns %d shards under epoch %d, wrote %d times, was refused %v times",
			p.Owned().Count(), p.Owned().Epoch(), p.wrote.Load(), p.figure("fenced_total"))
	})
}

// shared waits until the replicas own the shards evenly.
func shared(t *testing.T, players ...*player) {
	t.Helper()
	await.That(t, "an even share", func() string {
		sum, even, state := 0, true, ""
		for _, p := range players {
			n := p.Owned().Count()
			sum += n
			even = even && n >= fleet.ShardCount/len(players) && n <= fleet.ShardCount/len(players)+1
			state += fmt.Sprintf(" %s=%d", p.Self.Replica, n)
		}
		return await.Unless(even && sum == fleet.ShardCount, "%s", state)
	})
}

// holders returns the shard records by shard.
func holders(t *testing.T, c *store.Client) map[int]cluster.Shard {
	t.Helper()
	out := map[int]cluster.Shard{}
	for n := range fleet.ShardCount {
		s, err := store.Get(t.Context(), c, keys.Shard(service, n))
		if err != nil {
			t.Fatal(err)
		}
		out[n] = s
	}
	return out
}

// groupOf returns a group for each shard.
func groupOf() (groups [fleet.ShardCount]fleet.GroupName) {
	for i, left := 0, fleet.ShardCount; left > 0; i++ {
		g := fleet.GroupName(fmt.Sprintf("group-%d", i))
		if n := fleet.ShardOf(g); groups[n] == "" {
			groups[n] = g
			left--
		}
	}
	return groups
}

// write commits a record under a fence.
func write(ctx context.Context, c *store.Client, f store.Fence, id fleet.InstanceID, by string) error {
	key := keys.Placement("n1", id)
	have, err := store.Get(ctx, c, key)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return err
	}
	p := fleet.Placement{Instance: id, Name: by, Node: "n1", Epoch: f.Epoch()}
	_, err = c.Commit(ctx, store.Txn{Fences: []store.Fence{f}, Writes: []store.Write{store.Replace(key, p, have.ModRev)}})
	return err
}

func TestReplicasShareShardsEvenly(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	a := play(t, etcd, "a", time.Minute)
	shared(t, a)
	a.expect(map[string]float64{"owned_shards": 64, "live_replicas": 1, "takeovers_total free": 64})
	b := play(t, etcd, "b", time.Minute)
	shared(t, a, b)
	b.expect(map[string]float64{"owned_shards": 32, "live_replicas": 2, "takeovers_total handed": 32})

	before := holders(t, a.Client)
	c := play(t, etcd, "c", time.Minute)
	shared(t, a, b, c)
	after := holders(t, a.Client)
	moved := 0
	for n, was := range before {
		switch is := after[n]; {
		case is.Replica != was.Replica:
			moved++
		case is.CreateRev != was.CreateRev:
			t.Errorf("shard %d of %s was claimed anew at %d", n, is.Replica, is.CreateRev)
		}
	}
	if must := c.Owned().Count(); moved < must || moved > must+must/4 {
		t.Errorf("%d shards moved, %d must", moved, must)
	}
	for _, p := range []*player{a, b, c} {
		p.expect(map[string]float64{"live_replicas": 3, "takeovers_total ended": 0, "takeovers_total unclaimed": 0, "fenced_total": 0})
	}
}

func TestCleanStopReleasesShardsAtOnce(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	a, b, c := play(t, etcd, "a", time.Minute), play(t, etcd, "b", time.Minute), play(t, etcd, "c", time.Minute)
	shared(t, a, b, c)
	began := time.Now()
	c.stop()
	shared(t, a, b) // long before a session expires
	t.Logf("shared again after %v", time.Since(began))
	a.stop()
	shared(t, b)
	a.expect(map[string]float64{"owned_shards": 0, "live_replicas": 0})
}

func TestPausedOwnerIsReplacedAndFenced(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	a, b := play(t, etcd, "a", time.Second), play(t, etcd, "b", time.Second)
	shared(t, a, b)
	held := map[fleet.GroupName]store.Fence{}
	for _, g := range groupOf() {
		if f, ok := b.Owned().Fence(g); ok {
			held[g] = f
		}
	}
	began := time.Now()
	b.faults.Cut()
	shared(t, a)
	t.Logf("taken over after %v", time.Since(began))
	a.expect(map[string]float64{"takeovers_total ended": 32})
	for g := range held { // its own clock tells it
		b.until("not to give out the fence of "+string(g), func() bool { _, ok := b.Owned().Fence(g); return !ok })
	}
	b.faults.Heal()
	refused := 0
	for g, f := range held { // writes that were in flight when it was paused
		if err := write(t.Context(), b.Client, f, fleet.InstanceID(g), "b"); !errs.Is(err, errs.Fenced) {
			t.Errorf("a late write for %s: %v, want Fenced", g, err)
			continue
		}
		refused++
	}
	b.expect(map[string]float64{"fenced_total": float64(refused)})
	a.expect(map[string]float64{"fenced_total": 0})
	shared(t, a, b)
}

func TestReleasedShardIsFenced(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	a := play(t, etcd, "a", time.Minute)
	shared(t, a)
	before := a.Owned()
	b := play(t, etcd, "b", time.Minute)
	shared(t, a, b)
	handed := 0
	for _, g := range groupOf() {
		stale, _ := before.Fence(g)
		now, ok := a.Owned().Fence(g)
		if ok {
			if now.Epoch() != stale.Epoch() {
				t.Errorf("%s is owned under epoch %d, was %d", g, now.Epoch(), stale.Epoch())
			}
			continue
		}
		handed++
		theirs, ok := b.Owned().Fence(g)
		if !ok || theirs.Epoch() <= stale.Epoch() {
			t.Errorf("%s is owned by nobody, or under epoch %d after %d", g, theirs.Epoch(), stale.Epoch())
		}
		if err := write(t.Context(), a.Client, stale, fleet.InstanceID(g), "a"); !errs.Is(err, errs.Fenced) {
			t.Errorf("a late write for %s: %v, want Fenced", g, err)
		}
	}
	a.expect(map[string]float64{"fenced_total": float64(handed)})
}

func TestUnclaimedShardIsTakenOver(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	a := play(t, etcd, "a", time.Second)
	shared(t, a)
	key := keys.Session(service, "hung")
	hung, err := store.OpenSession(t.Context(), a.Client, key, cluster.Session{Service: service, Replica: "hung"}, time.Minute, false)
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close(context.WithoutCancel(t.Context()))
	owns(t, a.Replica, 32)
	owns(t, a.Replica, 64)
	a.expect(map[string]float64{"takeovers_total unclaimed": 32, "live_replicas": 2})
	hung.Close(t.Context())
	again := play(t, etcd, "hung", time.Minute)
	shared(t, a, again)
}

func TestReplicaRegainsItsShare(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	a, b, c := play(t, etcd, "a", 2*time.Second), play(t, etcd, "b", 2*time.Second), play(t, etcd, "c", 2*time.Second)
	shared(t, a, b, c)
	b.faults.Bar(keys.Shards(service).String())
	c.stop()
	a.until("to stand in for b", func() bool { return a.figure("takeovers_total unclaimed") > 0 })
	b.faults.Heal()
	shared(t, a, b)
}

func TestReplicaReopensRemovedSession(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	a := play(t, etcd, "a", time.Minute)
	shared(t, a)
	before := a.Owned().Epoch()
	if _, err := etcd.Raw().Delete(t.Context(), keys.Session(service, "a").String()); err != nil {
		t.Fatal(err)
	}
	a.until("to own all under a new epoch", func() bool { return a.Owned().Count() == fleet.ShardCount && a.Owned().Epoch() > before })
}

// After an outage, etcd extends every lease by a whole TTL. The test keeps the former lease alive
// forever, so a replica that waits for its expiry never finishes.
func TestReplicaRevokesItsFormerSession(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	a := play(t, etcd, "a", time.Second)
	shared(t, a)
	before := a.Owned().Epoch()
	resp, err := etcd.Raw().Get(t.Context(), keys.Session(service, "a").String())
	if err != nil || len(resp.Kvs) == 0 {
		t.Fatalf("no session: %v", err)
	}
	kept, err := etcd.Raw().KeepAlive(t.Context(), clientv3.LeaseID(resp.Kvs[0].Lease))
	if err != nil {
		t.Fatal(err)
	}
	var draining sync.WaitGroup
	draining.Go(func() {
		for range kept {
			continue
		}
	})
	t.Cleanup(draining.Wait)
	end := a.faults.KeepLeases()
	a.faults.Cut()
	a.until("to own nothing once its session is over", func() bool { _, ok := a.Owned().Any(); return !ok })
	a.faults.Heal()
	a.until("to have failed to end its former lease", func() bool { return a.faults.Kept() > 0 })
	end()
	a.until("to own all shards under a new session", func() bool { return a.Owned().Count() == fleet.ShardCount && a.Owned().Epoch() > before })
}

// expire ends a replica's session as etcd does without keep-alives.
func expire(t *testing.T, etcd *storetest.Etcd, replica string) {
	t.Helper()
	resp, err := etcd.Raw().Get(t.Context(), keys.Session(service, replica).String())
	if err != nil || len(resp.Kvs) == 0 {
		t.Fatalf("no session of %s: %v", replica, err)
	}
	if _, err := etcd.Raw().Revoke(t.Context(), clientv3.LeaseID(resp.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
}
