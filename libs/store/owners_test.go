package store_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

// scribble writes for every shard that the replica has ever owned, under the shard's fence, until ctx
// ends.
func (p *player) scribble(ctx context.Context) {
	var held [fleet.ShardCount]store.Fence
	groups := groupOf()
	for ; ctx.Err() == nil; <-time.After(time.Millisecond) { // leave CPU time to others
		for n, g := range groups {
			if f, ok := p.Owned().Fence(g); ok {
				held[n] = f
			}
			if held[n].Epoch() == 0 {
				continue
			}
			attempt, cancel := context.WithTimeout(ctx, time.Second)
			if err := write(attempt, p.Client, held[n], fleet.InstanceID(strconv.Itoa(n)), p.Self.Replica); err == nil {
				p.wrote.Add(1)
			}
			cancel()
		}
	}
}

// owners checks a history: a shard's epoch never decreases, and every write for a shard has the epoch
// of that revision.
type owners struct {
	t       *testing.T
	epoch   [fleet.ShardCount]int64 // 0 if the shard is free
	highest [fleet.ShardCount]int64
	changes int
	writes  map[string]int // by replica
}

// Reset implements store.Handler. It is called at the start, when nothing exists.
func (o *owners) Reset(kvs []store.KeyValue, _ int64) {
	if len(kvs) > 0 {
		o.t.Errorf("the history starts with %d records", len(kvs))
	}
}

// Apply implements store.Handler.
func (o *owners) Apply(changes []store.Change, _ int64) {
	for _, c := range changes {
		kind, rest, _ := keys.Split(c.Key)
		n, _ := strconv.Atoi(rest[len(rest)-1])
		switch kind {
		case "shards":
			o.owner(n, c)
		case "placements":
			o.written(n, c)
		}
	}
}

func (o *owners) owner(n int, c store.Change) {
	o.changes++
	if c.Removed {
		o.epoch[n] = 0
		return
	}
	if c.CreateRev <= o.highest[n] {
		o.t.Errorf("shard %d: epoch %d after %d", n, c.CreateRev, o.highest[n])
	}
	o.epoch[n], o.highest[n] = c.CreateRev, c.CreateRev
}

func (o *owners) written(n int, c store.Change) {
	p, err := store.Decode[fleet.Placement](c.KeyValue)
	if err != nil {
		o.t.Fatal(err)
	}
	o.writes[p.Name]++
	if p.Epoch != o.epoch[n] {
		o.t.Errorf("revision %d: %s wrote for shard %d under epoch %d, its owner has %d", c.ModRev, p.Name, n, p.Epoch, o.epoch[n])
	}
}

func TestOnlyOwnersWrite(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	observer := etcd.Client(t)
	from, err := observer.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var writers sync.WaitGroup
	defer func() { cancel(); writers.Wait() }()
	start := func(name string) *player {
		p := play(t, etcd, name, time.Second)
		writers.Go(func() { p.scribble(ctx) })
		return p
	}

	a, b := start("a"), start("b")
	shared(t, a, b)
	for _, p := range []*player{a, b} {
		p.until("to write for each of its shards", func() bool { return p.wrote.Load() >= fleet.ShardCount })
	}
	c := start("c")
	shared(t, a, b, c)
	c.until("to write", func() bool { return c.wrote.Load() > 0 })
	for _, p := range []*player{a, b} {
		p.until("to be refused what it handed over", func() bool { return p.figure("fenced_total") > 0 })
	}
	b.faults.Cut() // longer than its session
	shared(t, a, c)
	b.faults.Heal()
	shared(t, a, b, c)
	c.stop()
	shared(t, a, b)
	expire(t, etcd, "a") // it has not noticed yet
	shared(t, a, b)
	cancel()
	writers.Wait()

	to, err := observer.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o := &owners{t: t, writes: map[string]int{}}
	if err := observer.History(t.Context(), keys.Root, from, to, o); err != nil {
		t.Fatal(err)
	}
	refused := a.figure("fenced_total") + b.figure("fenced_total") + c.figure("fenced_total")
	t.Logf("%d revisions, %d changes of ownership, writes %v, %v refused", to-from, o.changes, o.writes, refused)
	for _, p := range []*player{a, b, c} {
		if o.writes[p.Self.Replica] == 0 {
			t.Errorf("the history has no write of %s", p.Self.Replica)
		}
	}
}
