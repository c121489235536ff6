package controller

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/spawn"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
)

// lagging is a controller that sees only what the test shows it, and makes a pass only when
// the test calls it.
type lagging struct {
	t      *testing.T
	c      *store.Client // a client without faults, for the test
	faults *storetest.Faults
	ctl    *Controller
	view   *view.View

	mu   sync.Mutex
	kept []view.Batch
}

func newLagging(t *testing.T) *lagging {
	t.Helper()
	etcd := storetest.Start(t)
	l := &lagging{t: t, c: etcd.Client(t)}
	var faulty *store.Client
	faulty, l.faults = etcd.Faulty(t)

	replica := &store.Replica{Client: l.c, Self: cluster.Session{Service: "scheduler", Replica: "a"}, Claim: true, Log: slog.New(slog.DiscardHandler)}
	l.ctl = New(Config{Store: faulty, View: view.New(l.c, nil, Kinds()...), Owned: replica.Owned, MaxCPU: 0.8, Log: slog.New(slog.DiscardHandler)})
	l.view = view.New(l.c, nil, Kinds()...)
	l.view.Subscribe(func(b view.Batch) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.kept = append(l.kept, b)
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = l.view.Run(ctx) })
	running.Go(func() { _ = replica.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	l.owning(replica.Owned, fleet.ShardCount)
	return l
}

// commit writes and waits until the view has it. The controller does not see it yet.
func (l *lagging) commit(txns ...store.Txn) (rev int64) {
	l.t.Helper()
	var err error
	for _, txn := range txns {
		if rev, err = l.c.Commit(l.t.Context(), txn); err != nil {
			l.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), await.Patience)
	defer cancel()
	if _, err := l.view.WaitRev(ctx, rev); err != nil {
		l.t.Fatal(err)
	}
	return rev
}

func (l *lagging) write(writes ...store.Write) int64 { return l.commit(store.Txn{Writes: writes}) }

// show feeds the store's changes up to a revision to the controller.
func (l *lagging) show(rev int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.kept) > 0 && l.kept[0].After.Rev <= rev {
		l.ctl.inbox.Add(l.kept[0])
		l.kept = l.kept[1:]
	}
}

// showAll feeds all changes to the controller.
func (l *lagging) showAll() {
	l.t.Helper()
	rev, err := l.c.Revision(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), await.Patience)
	defer cancel()
	if _, err := l.view.WaitRev(ctx, rev); err != nil {
		l.t.Fatal(err)
	}
	l.show(rev)
}

// pass makes the controller look once, skipping its pauses, and waits for the answers.
func (l *lagging) pass() {
	l.t.Helper()
	now := time.Now()
	if now.Before(l.ctl.pausedUntil) {
		now = l.ctl.pausedUntil
	}
	l.ctl.pass(l.t.Context(), now)
	for l.ctl.inProgress > 0 {
		l.ctl.onCommitResult(l.answer(), time.Now())
	}
}

// passUnanswered makes the controller look once before any answer arrives.
func (l *lagging) passUnanswered(now time.Time) {
	l.t.Helper()
	l.faults.Cut()
	defer l.faults.Heal()
	l.ctl.pass(l.t.Context(), now)
}

// answer waits for the result of a transaction.
func (l *lagging) answer() *bulk {
	l.t.Helper()
	select {
	case f := <-l.ctl.answers:
		return f
	case <-time.After(await.Patience):
		l.t.Fatalf("%d transactions were not answered", l.ctl.inProgress)
		return nil
	}
}

func (l *lagging) node(id fleet.NodeID, memory int) int64 {
	l.t.Helper()
	return l.write(
		store.Create(keys.Node(id), fleet.Node{ID: id, Capacity: fleet.Resources{MemoryMiB: memory, CPU: 1000, DiskMiB: 1000}, Runtimes: []fleet.NodeRuntime{{Name: fleet.RuntimeProcess, Offered: true}}}),
		store.Create(keys.NodeSession(id), fleet.NodeSession{Node: id}))
}

// instance creates a group with one instance.
func (l *lagging) instance(group fleet.GroupName, memory int) fleet.InstanceID {
	l.t.Helper()
	g := fleet.Group{Name: group, Revision: 1, Spec: fleet.DefaultSpec()}
	g.Spec.Resources = fleet.Resources{MemoryMiB: memory}
	l.write(store.Create(keys.Group(group), g))
	sp := spawn.New(l.view.Snapshot(), time.Now(), rand.New(rand.NewPCG(1, uint64(memory))))
	b := sp.Fresh(&g, spawn.Cause{Origin: fleet.OriginManual, Reason: fleet.ReasonRequested}, "", nil)
	l.commit(sp.Txns([]spawn.Birth{b}, nil, nil, l.c.MaxOps())...)
	return b.Intent.ID
}

// placedOn returns the nodes with a placement of an instance.
func (l *lagging) placedOn(id fleet.InstanceID) (nodes []fleet.NodeID) {
	l.t.Helper()
	for _, n := range []fleet.NodeID{"n1", "n2"} {
		if _, err := store.Get(l.t.Context(), l.c, keys.Placement(n, id)); err == nil {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// cordoned queues an instance for n1, which is cordoned without the controller having seen
// it. The next choice would be n2.
func (l *lagging) cordoned() (id fleet.InstanceID, cordon int64) {
	l.t.Helper()
	l.node("n1", 100_000)
	l.node("n2", 100)
	id = l.instance("lobby", 10)
	l.showAll()
	return id, l.write(store.Create(keys.NodeDesired("n1"), fleet.NodeDesired{Node: "n1", Cordoned: true}))
}

func (l *lagging) wantOn(id fleet.InstanceID, node fleet.NodeID) {
	l.t.Helper()
	if on := l.placedOn(id); len(on) != 1 || on[0] != node {
		l.t.Fatalf("placed on %v, want %s alone", on, node)
	}
}

func TestAPlacementWithALostAnswerIsNotMadeTwice(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	id, cordon := l.cordoned()
	l.faults.LoseAnswer(keys.Root+"placements/", true)
	l.pass()
	l.wantOn(id, "n1")

	l.faults.Heal()
	l.show(cordon) // the view is still behind the commit
	l.pass()
	l.wantOn(id, "n1")

	l.showAll()
	l.pass()
	l.wantOn(id, "n1")
	other := l.instance("other", 20)
	l.showAll()
	l.pass()
	l.wantOn(other, "n2")
}

func TestADoubtOutlivesTheLossOfSomeOfItsShards(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	kept, lost, stop := l.rival()
	stop()
	l.owning(l.ctl.owned, fleet.ShardCount)
	l.node("n1", 100_000)
	l.node("n2", 100)
	stays, goes := l.instance(kept, 10), l.instance(lost, 200) // too large for n2
	l.showAll()
	cordon := l.write(store.Create(keys.NodeDesired("n1"), fleet.NodeDesired{Node: "n1", Cordoned: true}))
	l.faults.LoseAnswer(keys.Root+"placements/", true)
	l.pass()
	l.wantOn(stays, "n1")
	l.wantOn(goes, "n1")

	_, _, stop = l.rival()
	defer stop()
	l.faults.Heal()
	l.show(cordon) // the view is still behind the commit
	l.pass()
	l.pass()
	l.wantOn(stays, "n1")
}

// rival starts another replica and waits until it has its share. It returns a group in a
// shard that this controller keeps and one in a shard that it loses.
func (l *lagging) rival() (kept, lost fleet.GroupName, stop func()) {
	l.t.Helper()
	r := &store.Replica{Client: l.c, Self: cluster.Session{Service: "scheduler", Replica: "b"}, Claim: true, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(l.t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	stop = func() { cancel(); running.Wait() }
	l.t.Cleanup(stop)
	l.owning(r.Owned, fleet.ShardCount/2)
	l.owning(l.ctl.owned, fleet.ShardCount/2)
	for i := 0; kept == "" || lost == ""; i++ {
		g := fleet.GroupName(fmt.Sprintf("group-%d", i))
		if _, ok := l.ctl.owned().Fence(g); ok {
			kept = g
		} else {
			lost = g
		}
	}
	return kept, lost, stop
}

// owning waits until a replica owns n shards.
func (l *lagging) owning(owned func() *store.Ownership, n int) {
	l.t.Helper()
	await.That(l.t, fmt.Sprint(n, " shards owned"), func() string {
		got := owned().Count()
		return await.Unless(got == n, "%d", got)
	})
}

func TestAPlacementThatNeverArrivedIsMadeAgain(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	id, _ := l.cordoned()
	l.faults.Refuse(keys.Root + "placements/")
	l.pass()
	l.pass()
	l.showAll()
	l.pass()
	l.wantOn(id, "n2")
}

func TestNothingIsPlacedTwiceBeforeTheViewHasIt(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	id, cordon := l.cordoned()
	l.pass()
	l.show(cordon)
	l.pass()
	l.wantOn(id, "n1")
}

func TestAFloorOfALostPastIsForgotten(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 100_000)
	l.instance("first", 10)
	l.showAll()
	l.pass()
	next := l.instance("next", 20)
	rewound := *l.view.Snapshot()
	rewound.Rev = l.ctl.owned().Epoch()
	l.ctl.inbox.Add(view.Batch{Before: l.view.Snapshot(), After: &rewound, Relisted: true, Rewound: true})
	l.pass()
	l.wantOn(next, "n1")
}

// note returns the stored reason for waiting.
func (l *lagging) note(id fleet.InstanceID) fleet.Pending {
	l.t.Helper()
	p, err := store.Get(l.t.Context(), l.c, keys.Pending(id))
	if err != nil {
		l.t.Fatal(err)
	}
	return p
}

func TestANoteThatMetAChangeIsWrittenAfterIt(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 10)
	id := l.instance("big", 1000)
	l.showAll()
	l.write(store.Create(keys.Pending(id), fleet.Pending{Instance: id, Reason: fleet.ReasonPlanMissing}))
	l.pass()
	l.showAll()
	l.pass()
	if p := l.note(id); p.Reason != fleet.ReasonNoNodeFits {
		t.Errorf("the note says %s", p.Reason)
	}
}

func TestEveryNoteThatCameTooSoonIsStillDue(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 10)
	ids := []fleet.InstanceID{l.instance("big", 1000), l.instance("bigger", 2000)}
	l.showAll()
	l.pass()
	l.showAll()
	l.node("n2", 10)
	l.showAll()
	soon := l.note(ids[0]).At.Add(noteEvery / 2)
	l.ctl.pass(t.Context(), soon)
	if l.ctl.inProgress > 0 || l.ctl.state.refresh.IsZero() {
		t.Fatalf("%d transactions are under way, the next notes at %v", l.ctl.inProgress, l.ctl.state.refresh)
	}
	l.ctl.retryDue(l.ctl.state.refresh)
	if n := len(l.ctl.notes); n != len(ids) {
		t.Errorf("%d of %d notes written when due", n, len(ids))
	}
}

func TestWhatWasAnsweredBeforeEtcdWentBackIsNotPlacedTwice(t *testing.T) {
	t.Parallel()
	for when, late := range map[string]bool{"the answer came before": false, "the answer came after": true} {
		t.Run(when, func(t *testing.T) {
			l := newLagging(t)
			id, _ := l.cordoned()
			restored := *l.view.Snapshot() // it may have been read before the placement
			l.passUnanswered(time.Now())
			answer := l.answer()
			if !late {
				l.ctl.onCommitResult(answer, time.Now())
			}
			l.ctl.inbox.Add(view.Batch{Before: &restored, After: &restored, Relisted: true, Rewound: true})
			l.ctl.catchUp(time.Now())
			if late {
				l.ctl.onCommitResult(answer, time.Now())
			}
			l.pass()
			l.wantOn(id, "n1")
			l.showAll()
			l.pass()
			l.wantIdle(0)
		})
	}
}

func TestWhatALostPastHadAndEtcdHasNotIsPlacedAgain(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 100)
	id := l.want("lobby", 1, nil)[0]
	l.showAll()
	l.pass()
	l.wantOn(id, "n1")
	a, err := store.Get(t.Context(), l.c, keys.Alloc("n1"))
	if err != nil {
		t.Fatal(err)
	}
	restored := *l.ctl.state.snap
	lost := l.write(store.Remove(keys.Placement("n1", id), a.ModRev), store.Remove(keys.Alloc("n1"), a.ModRev))
	l.ctl.inbox.Add(view.Batch{Before: &restored, After: &restored, Relisted: true, Rewound: true})
	l.pass() // the outcome of the placement is unknown
	l.show(lost)
	l.until("placed again", func() bool {
		l.showAll()
		l.pass()
		return len(l.placedOn(id)) == 1
	})
}
