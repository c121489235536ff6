package store_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
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

// witness records all calls to a follower.
type witness struct {
	mu      sync.Mutex
	name    string
	told    []told
	state   map[string]string
	rewound int
	moved   chan struct{}
}

// told is one call; a list if changes is nil.
type told struct {
	list    map[string]string
	changes []string
	rev     int64
}

func (w *witness) Rewound() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rewound++
}

func (w *witness) Reset(kvs []store.KeyValue, rev int64) {
	state := storetest.State(kvs)
	w.note(told{list: state, rev: rev}, maps.Clone(state))
}

func (w *witness) Apply(changes []store.Change, rev int64) {
	in := told{changes: []string{}, rev: rev}
	state := w.now()
	for _, c := range changes {
		in.changes = append(in.changes, storetest.Describe(c))
		if c.Removed {
			delete(state, c.Key)
		} else {
			maps.Copy(state, storetest.State([]store.KeyValue{c.KeyValue}))
		}
	}
	w.note(in, state)
}

// now returns the state as the follower knows it.
func (w *witness) now() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.state)
}

func (w *witness) note(in told, state map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told, w.state = append(w.told, in), state
	select {
	case w.moved <- struct{}{}:
	default:
	}
}

// last returns the follower's revision and the number of its lists.
func (w *witness) last() (rev int64, lists int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, in := range w.told {
		if rev = in.rev; in.list != nil {
			lists++
		}
	}
	return rev, lists
}

// await waits until the follower has reached a revision.
func (w *witness) await(t *testing.T, rev int64) {
	t.Helper()
	w.until(t, fmt.Sprintf("revision %d", rev), func() bool { got, _ := w.last(); return got >= rev })
}

func (w *witness) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.After(await.Patience); !cond(); {
		select {
		case <-w.moved:
		case <-deadline:
			rev, lists := w.last()
			t.Fatalf("%s never saw %s: it is at %d after %d lists", w.name, what, rev, lists)
		}
	}
}

// compare checks the recorded calls against etcd's history: every list is the state at its revision,
// and the calls have all changes in between.
func (w *witness) compare(t *testing.T, truth *storetest.Truth) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var at int64
	for _, in := range w.told {
		if in.list != nil {
			if want := truth.At(in.rev); !maps.Equal(in.list, want) {
				t.Fatalf("%s: the list at %d has %d records, want %d:\n%v\n%v", w.name, in.rev, len(in.list), len(want), in.list, want)
			}
		} else if want := truth.Between(at, in.rev); !slices.Equal(in.changes, want) {
			t.Fatalf("%s: from %d to %d it was told\n%v\nwant\n%v", w.name, at, in.rev, in.changes, want)
		}
		if in.rev < at {
			t.Fatalf("%s: revision %d after %d", w.name, in.rev, at)
		}
		at = in.rev
	}
}

func follow(t *testing.T, name string, c *store.Client, prefix string) *witness {
	t.Helper()
	w := &witness{name: name, moved: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Follow(ctx, prefix, w) }()
	t.Cleanup(func() { cancel(); <-done })
	w.await(t, 1)
	return w
}

// scribble changes records continuously and ignores errors.
func scribble(t *testing.T, c *store.Client) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			attempt, release := context.WithTimeout(ctx, 2*time.Second)
			scrawl(attempt, c, i)
			release()
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// scrawl changes one to three of nine records in one transaction.
func scrawl(ctx context.Context, c *store.Client, i int) {
	var writes []store.Write
	for n := range i%3 + 1 {
		k := keys.Alloc(fleet.NodeID(fmt.Sprintf("n%d", (i*5+n)%9)))
		old, err := store.Get(ctx, c, k)
		switch {
		case errs.Is(err, errs.NotFound):
			writes = append(writes, store.Create(k, fleet.Alloc{Node: fleet.NodeID(fmt.Sprint("v", i))}))
		case err != nil:
			return
		case i%7 == 0:
			writes = append(writes, store.Remove(k, old.ModRev))
		default:
			writes = append(writes, store.Replace(k, fleet.Alloc{Node: fleet.NodeID(fmt.Sprint("v", i))}, old.ModRev))
		}
	}
	_, _ = c.Commit(ctx, store.Txn{Writes: writes})
}

func TestFollowersMissAndRepeatNothing(t *testing.T) {
	t.Parallel()
	etcd := storetest.StartCluster(t, 3)
	c := etcd.Client(t)
	prefix := keys.Root + "allocs/"
	truth := storetest.NewTruth(t, c, prefix)
	roaming := follow(t, "the follower of all members", etcd.Client(t), prefix)
	bound := follow(t, "the follower of one member", etcd.ClientAt(t, etcd.Endpoints()[0]), prefix)
	stop := scribble(t, etcd.Client(t))

	goOn := func() { // until both have received more
		rev, err := c.Revision(t.Context())
		for errs.Is(err, errs.Unavailable) && t.Context().Err() == nil {
			rev, err = c.Revision(t.Context())
		}
		roaming.await(t, rev+20)
		bound.await(t, rev+20)
	}
	goOn()
	for i := range 4 { // the leadership moves
		etcd.MoveLeader(t, (etcd.Leader(t)+1+i%2)%3)
		goOn()
	}
	for range 2 { // leaders die
		dead := etcd.Leader(t)
		etcd.Kill(dead)
		etcd.Leader(t)
		roaming.await(t, truth.Now()+1)
		etcd.Restart(t, dead)
		goOn()
	}
	for range 2 { // a member returns to a compacted history
		_, lists := bound.last()
		etcd.Kill(0)
		rev, _ := roaming.last()
		roaming.await(t, rev+20)
		truth.Extend(t, c)
		etcd.CompactBefore(t, truth.Now())
		etcd.Restart(t, 0)
		goOn()
		if _, now := bound.last(); now <= lists {
			t.Errorf("nothing was compacted away: %d lists", now)
		}
	}
	stop()
	truth.Extend(t, c)
	roaming.await(t, truth.Now())
	bound.await(t, truth.Now())
	roaming.compare(t, truth)
	bound.compare(t, truth)
	if len(truth.Between(0, truth.Now())) < 100 {
		t.Errorf("only %d changes happened", len(truth.Between(0, truth.Now())))
	}
}

func TestFollowerSurvivesFullOutage(t *testing.T) {
	t.Parallel()
	etcd := storetest.StartCluster(t, 3)
	c := etcd.Client(t)
	prefix := keys.Root + "allocs/"
	truth := storetest.NewTruth(t, c, prefix)
	w := follow(t, "the follower", etcd.Client(t), prefix)
	put(t, c, store.Create(keys.Alloc("before"), fleet.Alloc{}))
	etcd.KillAll()
	etcd.RestartAll(t)
	etcd.Leader(t)
	put(t, c, store.Create(keys.Alloc("after"), fleet.Alloc{}))
	truth.Extend(t, c)
	w.await(t, truth.Now())
	w.compare(t, truth)
	if rev, lists := w.last(); lists != 1 {
		t.Errorf("%d lists at %d: the watch was to go on where it was", lists, rev)
	}
}

func TestLargeWatchResponseArrivesComplete(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	c := etcd.Client(t)
	prefix := keys.Root + "allocs/"
	truth := storetest.NewTruth(t, c, prefix)
	w := follow(t, "the follower", c, prefix)
	etcd.Stop()
	etcd.Restart(t)
	large := `{"node":"` + strings.Repeat("x", 300<<10) + `"}`
	for i := range 16 { // a message is limited to 1.5 MiB
		var ops []clientv3.Op
		for n := range 4 {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("%sn%d-%d", prefix, i, n), large))
		}
		if _, err := etcd.Raw().Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	truth.Extend(t, c)
	w.await(t, truth.Now())
	w.compare(t, truth)
}
