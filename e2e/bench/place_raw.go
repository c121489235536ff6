package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/memory"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// placeDepth is how many transactions a replay keeps in progress, the same number as the
// scheduler.
const placeDepth = 8

// madeTxn maps the nodes of one revision to their placements.
type madeTxn map[fleet.NodeID][]madePlacement

type madePlacement struct {
	key, value string
	id         fleet.InstanceID
}

// read reads the placements from etcd and checks them.
func (e *placeEtcd) read(ctx context.Context, size fleetSize, run *placeRun) error {
	prefix := keys.Root + "placements/"
	byRev := map[int64]madeTxn{}
	var found []fleet.Placement
	for key := prefix; ; {
		resp, err := e.raw.Get(ctx, key, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(5000))
		if err != nil {
			return err
		}
		for _, kv := range resp.Kvs {
			var p fleet.Placement
			if err := json.Unmarshal(kv.Value, &p); err != nil {
				return err
			}
			found = append(found, p)
			if byRev[kv.ModRevision] == nil {
				byRev[kv.ModRevision] = madeTxn{}
			}
			t := byRev[kv.ModRevision]
			t[p.Node] = append(t[p.Node], madePlacement{string(kv.Key), string(kv.Value), p.Instance})
		}
		if !resp.More {
			break
		}
		key = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
	run.placed = len(found)
	run.faults = faults(size, found)
	revs := make([]int64, 0, len(byRev))
	for rev := range byRev {
		revs = append(revs, rev)
	}
	slices.Sort(revs)
	for _, rev := range revs {
		run.txns = append(run.txns, byRev[rev])
	}
	return nil
}

// faults counts placements beyond a node's capacity, and ports and instances that were
// placed twice.
func faults(size fleetSize, found []fleet.Placement) (n int) {
	memory, taken := map[fleet.NodeID]int{}, map[string]bool{}
	for _, p := range found {
		memory[p.Node] += p.Resources.MemoryMiB
		if memory[p.Node] > size.room()*512 {
			n++
		}
		for _, what := range []string{fmt.Sprintf("%s:%d", p.Node, p.Port), string(p.Instance)} {
			if taken[what] {
				n++
			}
			taken[what] = true
		}
	}
	return n
}

// replayer repeats the transactions of a run in another etcd without planning and without
// watchers.
type replayer struct {
	e       *placeEtcd
	intents map[fleet.InstanceID]int64
	meta    string
	fence   clientv3.Cmp

	// mu guards the following fields.
	mu     sync.Mutex
	cond   *sync.Cond
	allocs map[fleet.NodeID]int64
	busy   map[fleet.NodeID]bool
	failed error
}

// replay repeats the transactions of a run with the same comparisons, keys, values and
// concurrency.
func (b *bench) replay(ctx context.Context, size fleetSize, run *placeRun) (*placeRun, error) {
	ctx, cancel := context.WithTimeout(ctx, placePatience)
	defer cancel()
	progress("the same transactions without a scheduler")
	e, err := b.startPlaceEtcd()
	if err != nil {
		return nil, err
	}
	defer e.stop()
	r := &replayer{e: e, allocs: map[fleet.NodeID]int64{}, busy: map[fleet.NodeID]bool{}}
	r.cond = sync.NewCond(&r.mu)
	if err := r.prepare(ctx, size); err != nil {
		return nil, err
	}
	next := make(chan madeTxn)
	var working, spending sync.WaitGroup
	spend, enough := context.WithCancel(ctx)
	defer spending.Wait()
	defer enough()
	if os.Getenv("GOGC") == "" { // as beside a scheduler
		spending.Go(func() { _ = memory.Spend(spend, placeBudget) })
	}
	began, before := time.Now(), cpuTime()
	for range placeDepth {
		working.Go(func() {
			for t := range next {
				r.perform(ctx, t)
			}
		})
	}
	for _, t := range run.txns {
		if !r.reserve(t) {
			break
		}
		next <- t
	}
	close(next)
	working.Wait()
	if r.failed != nil {
		return nil, r.failed
	}
	raw := &placeRun{placed: run.placed, took: time.Since(began), cpu: cpuTime() - before}
	progress("%.0f placements a second, %.1f µs of CPU each", raw.perSecond(), raw.cpuEach())
	return raw, nil
}

func (r *replayer) prepare(ctx context.Context, size fleetSize) error {
	c := r.e.store()
	if _, err := c.Join(ctx, time.Now()); err != nil {
		return err
	}
	if err := size.seed(ctx, c); err != nil {
		return err
	}
	meta, err := r.e.raw.Get(ctx, keys.Meta().String())
	if err != nil {
		return err
	}
	r.meta = string(meta.Kvs[0].Value)
	fence := keys.Shard("scheduler", 0).String()
	put, err := r.e.raw.Put(ctx, fence, "{}")
	if err != nil {
		return err
	}
	r.fence = clientv3.Compare(clientv3.CreateRevision(fence), "=", put.Header.Revision)
	intents, _, err := store.List(ctx, c, keys.Intents())
	if err != nil {
		return err
	}
	r.intents = make(map[fleet.InstanceID]int64, len(intents))
	for _, in := range intents {
		r.intents[in.ID] = in.ModRev
	}
	return nil
}

// reserve waits until no transaction is in progress on a transaction's nodes. It returns
// false after a failure.
func (r *replayer) reserve(t madeTxn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	under := func() bool {
		for n := range t {
			if r.busy[n] {
				return true
			}
		}
		return false
	}
	for r.failed == nil && under() {
		r.cond.Wait()
	}
	for n := range t {
		r.busy[n] = true
	}
	return r.failed == nil
}

func (r *replayer) perform(ctx context.Context, t madeTxn) {
	resp, err := r.build(ctx, t).Commit()
	if err == nil && !resp.Succeeded {
		err = fmt.Errorf("a replayed transaction on %d nodes met a change", len(t))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.failed = err
	}
	for n := range t {
		r.busy[n] = false
		if err == nil {
			r.allocs[n] = resp.Header.Revision
		}
	}
	r.cond.Broadcast()
}

// build builds a transaction like the scheduler: with a nested one for each node.
func (r *replayer) build(ctx context.Context, t madeTxn) clientv3.Txn {
	r.mu.Lock()
	defer r.mu.Unlock()
	var parts []clientv3.Op
	unchanged := func(key string, rev int64) clientv3.Cmp {
		return clientv3.Compare(clientv3.ModRevision(key), "=", rev)
	}
	for node, placements := range t {
		key := keys.Alloc(node).String()
		cmps := []clientv3.Cmp{unchanged(key, r.allocs[node])}
		puts := []clientv3.Op{clientv3.OpPut(key, `{"node":"`+string(node)+`"}`)}
		for _, p := range placements {
			cmps = append(cmps, unchanged(keys.Intent(p.id).String(), r.intents[p.id]), unchanged(p.key, 0))
			puts = append(puts, clientv3.OpPut(p.key, p.value))
		}
		parts = append(parts, clientv3.OpTxn(cmps, puts, nil))
	}
	owned := []clientv3.Cmp{r.fence, clientv3.Compare(clientv3.Value(keys.Meta().String()), "=", r.meta)}
	return r.e.raw.Txn(ctx).If(owned...).Then(parts...)
}
