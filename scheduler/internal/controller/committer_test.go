package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/spawn"
	"github.com/orreryhq/orrery/scheduler/internal/pending"
)

// want creates a group with instances.
func (l *lagging) want(group fleet.GroupName, n int, change func(*fleet.GroupSpec)) []fleet.InstanceID {
	l.t.Helper()
	g := fleet.Group{Name: group, Revision: 1, Spec: fleet.DefaultSpec()}
	g.Spec.Resources = fleet.Resources{MemoryMiB: 10}
	if change != nil {
		change(&g.Spec)
	}
	l.write(store.Create(keys.Group(group), g))
	return l.more(group, n)
}

// more creates more instances of a group.
func (l *lagging) more(group fleet.GroupName, n int) []fleet.InstanceID {
	l.t.Helper()
	return l.moreWith(group, n, fleet.ReasonRequested, "")
}

func (l *lagging) moreWith(group fleet.GroupName, n int, why fleet.Reason, replaces fleet.InstanceID) (ids []fleet.InstanceID) {
	l.t.Helper()
	g, _ := l.view.Snapshot().Groups.Get(group)
	sp := spawn.New(l.view.Snapshot(), time.Now(), rand.New(rand.NewPCG(7, uint64(g.ModRev)+uint64(l.view.Snapshot().Rev))))
	var births []spawn.Birth
	for range n {
		b := sp.Fresh(g, spawn.Cause{Origin: fleet.OriginManual, Reason: why}, replaces, nil)
		births, ids = append(births, b), append(ids, b.Intent.ID)
	}
	l.commit(sp.Txns(births, nil, nil, l.c.MaxOps())...)
	return ids
}

func on(n fleet.NodeID) func(*fleet.GroupSpec) {
	return func(s *fleet.GroupSpec) { s.Where.Nodes = []fleet.NodeID{n} }
}

// placed returns the instances that have a placement in the store.
func (l *lagging) placed(ids []fleet.InstanceID) (out []fleet.InstanceID) {
	for _, id := range ids {
		if len(l.placedOn(id)) > 0 {
			out = append(out, id)
		}
	}
	return out
}

// wantIdle checks that nothing is assumed and that a number of instances wait.
func (l *lagging) wantIdle(waiting int) {
	l.t.Helper()
	s := l.ctl.state
	if len(s.assumed) != 0 || s.queued != 0 || len(s.waiters) != waiting {
		l.t.Errorf("%d assumed, %d queued, %d waiting; want none, none and %d", len(s.assumed), s.queued, len(s.waiters), waiting)
	}
}

func TestALostRaceRedoesOnlyTheLoser(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 100)
	l.node("n2", 100)
	loser, winner := l.want("loser", 1, on("n1"))[0], l.want("winner", 1, on("n2"))[0]
	l.showAll()
	l.write(touch("n1", 0)) // another scheduler was first
	l.pass()
	l.wantOn(winner, "n2")
	if nodes := l.placedOn(loser); len(nodes) > 0 {
		t.Fatalf("the loser was placed on %v from what was known before", nodes)
	}
	first, err := store.Get(t.Context(), l.c, keys.Placement("n2", winner))
	if err != nil {
		t.Fatal(err)
	}
	l.showAll()
	l.pass()
	l.wantOn(loser, "n1")
	again, err := store.Get(t.Context(), l.c, keys.Placement("n2", winner))
	if err != nil || again.ModRev != first.ModRev {
		t.Errorf("the winner was placed again: %v, %v", again.Rev, err)
	}
	l.showAll()
	l.pass()
	l.wantIdle(0)
}

func TestANodeQueueKnowsItsOwnLastCommitBeforeTheViewDoes(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 100)
	ids := l.want("lobby", 1, nil)
	l.showAll()
	at := l.want("late", 2, nil)
	behind := l.view.Snapshot().Rev
	l.pass()
	l.show(behind) // the new instances, but not the placement
	l.pass()
	if got := l.placed(append(ids, at...)); len(got) != 3 {
		t.Errorf("%d of 3 placed while the view is behind", len(got))
	}
	l.showAll()
	l.pass()
	l.wantIdle(0)
}

func TestWhatTheViewShowsBeforeTheAnswerIsChargedOnce(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 20)
	first := l.want("first", 1, nil)
	l.showAll()
	l.passUnanswered(time.Now())
	answer := l.answer()
	l.showAll()
	l.ctl.catchUp(time.Now())
	l.ctl.onCommitResult(answer, time.Now())
	more := l.want("more", 2, nil)
	l.showAll()
	l.pass()
	if got := l.placed(append(first, more...)); len(got) != 2 {
		t.Errorf("%d placed in the room of 2", len(got))
	}
}

func TestWhatWasDecidedBeforeItsNodeChangedIsDecidedAgain(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	id, _ := l.cordoned()
	l.ctl.depth = 0 // sends nothing yet
	l.pass()
	if l.ctl.state.queued != 1 {
		t.Fatalf("%d decided ahead", l.ctl.state.queued)
	}
	l.showAll()
	l.ctl.depth = 1
	l.pass()
	l.wantOn(id, "n2")
}

func TestWhatIsStoppedBeforeItWasSentIsNotSent(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 10)
	id := l.want("lobby", 1, nil)[0]
	l.showAll()
	l.ctl.depth = 0
	l.pass()
	i, _ := l.view.Snapshot().Instances.Get(id)
	stopped := i.Intent
	stopped.Desired = fleet.DesiredStopped
	l.write(store.Replace(keys.Intent(id), stopped, i.Intent.ModRev))
	other := l.want("other", 1, nil)
	l.showAll()
	l.ctl.depth = 1
	l.pass()
	l.wantOn(other[0], "n1")
}

func TestAnUnknownPlacementKeepsItsRoomUntilItIsSettled(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 10)
	l.node("n2", 10)
	first := l.want("first", 1, on("n1"))[0]
	l.showAll()
	l.faults.Refuse(keys.Root + "placements/") // it did not happen, but the controller cannot know
	l.pass()
	l.faults.Bar(keys.Root + "allocs/n1")
	second, third := l.want("second", 1, on("n1"))[0], l.want("third", 1, on("n2"))[0]
	l.showAll()
	l.pass()
	l.wantOn(third, "n2")
	if p := l.note(second); p.Lost[0].Filter != "memory" && p.Lost[0].Filter != "nodes" {
		t.Errorf("the second waits for %+v", p.Lost)
	}
	if got := l.placed([]fleet.InstanceID{first, second}); len(got) > 0 {
		t.Errorf("%v placed before it was settled", got)
	}
	l.faults.Heal()
	for range 3 { // settle, see the result, place again
		l.pass()
		l.showAll()
	}
	if got := l.placed([]fleet.InstanceID{first, second}); len(got) != 1 {
		t.Errorf("%d placed in the room of 1", len(got))
	}
}

func TestWhoIsFencedOffReleasesAllItAssumed(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 100)
	ids := l.want("lobby", 5, nil)
	l.showAll()
	stale := l.ctl.owned()
	l.ctl.owned = func() *store.Ownership { return stale } // it does not notice
	for n := range fleet.ShardCount {
		shard, err := store.Get(t.Context(), l.c, keys.Shard("scheduler", n))
		if err != nil {
			t.Fatal(err)
		}
		l.write(store.Remove(keys.Shard("scheduler", n), shard.ModRev))
	}
	l.pass()
	if got := l.placed(ids); len(got) > 0 {
		t.Errorf("%v placed by a former owner", got)
	}
	l.wantIdle(len(ids))
}

func TestWhatIsAssumedSurvivesARelistAndEndsWithIt(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 20)
	ids := l.want("lobby", 2, nil)
	l.showAll()
	l.ctl.catchUp(time.Now())
	before := *l.ctl.state.snap
	l.pass()
	l.ctl.state.rebuild(&before, time.Now(), false) // a list from before the placements
	if len(l.ctl.state.assumed) != 2 || len(l.ctl.state.waiters) != 0 {
		t.Fatalf("%d assumed, %d waiting", len(l.ctl.state.assumed), len(l.ctl.state.waiters))
	}
	l.ctl.state.rebuild(l.view.Snapshot(), time.Now(), false)
	more := l.want("more", 1, nil)
	l.showAll()
	l.pass()
	l.showAll()
	l.pass()
	if got := l.placed(append(ids, more...)); len(got) != 2 {
		t.Errorf("%d placed in the room of 2", len(got))
	}
}

func TestPriorityThenStartupWeightComeBeforeAge(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(*fleet.GroupSpec){
		"priority before weight": func(s *fleet.GroupSpec) { s.Priority = 5 },
		"weight before age":      func(s *fleet.GroupSpec) { s.StartupWeight = 20 },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLagging(t)
			older := l.want("older", 1, func(s *fleet.GroupSpec) { s.StartupWeight = 10 })[0]
			newer := l.want("newer", 1, first)[0]
			l.showAll()
			l.pass() // both wait for a node
			l.node("n1", 10)
			l.showAll()
			l.pass()
			l.wantOn(newer, "n1")
			if got := l.placedOn(older); len(got) > 0 {
				t.Errorf("the older one is on %v, too", got)
			}
		})
	}
}

func TestAPriorityThatIsRaisedCountsForWhatWaits(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.want("older", 1, nil)
	newer := l.want("newer", 1, nil)[0]
	l.showAll()
	l.pass()
	g, err := store.Get(t.Context(), l.c, keys.Group("newer"))
	if err != nil {
		t.Fatal(err)
	}
	g.Spec.Priority = 1
	l.write(store.Replace(keys.Group("newer"), g, g.ModRev))
	l.node("n1", 10)
	l.showAll()
	l.pass()
	l.wantOn(newer, "n1")
}

func TestOfManyAlikeAsManyArePlacedAsRoomComes(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 10)
	ids := l.want("lobby", 6, nil)
	for room := 1; room <= 5; room += 2 {
		l.showAll()
		l.pass()
		l.showAll()
		l.pass()
		if got := l.placed(ids); len(got) != room {
			t.Fatalf("%d placed in the room of %d", len(got), room)
		}
		if room == 1 {
			l.node("n2", 20)
		} else if room == 3 {
			n, _ := l.view.Snapshot().Nodes.Get("n2")
			larger := *n
			larger.Capacity.MemoryMiB += 20
			l.write(store.Replace(keys.Node("n2"), larger, n.ModRev))
		}
	}
	l.wantIdle(1)
}

func TestGroupsOfAllShardsArePlacedThoughOneBulkCannotCarryAllFences(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	var ids []fleet.InstanceID
	shards := map[int]bool{}
	for n := 0; len(shards) < fleet.ShardCount; n++ {
		name := fleet.GroupName(fmt.Sprintf("g%d", n))
		if shards[fleet.ShardOf(name)] {
			continue
		}
		shards[fleet.ShardOf(name)] = true
		node := fleet.NodeID(fmt.Sprintf("n%d", len(shards)))
		l.node(node, 10)
		ids = append(ids, l.want(name, 1, on(node))...)
	}
	l.showAll()
	l.pass()
	l.showAll()
	l.pass()
	l.showAll()
	l.pass()
	l.wantIdle(0)
	for _, id := range ids {
		if i, _ := l.view.Snapshot().Instances.Get(id); i.Placement == nil {
			t.Errorf("%s was not placed", id)
		}
	}
}

func TestTheQueueGivesThePriorToThePriorAndLosesNone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var q pending.Queue
		var in []*pending.Instance
		for n := range rapid.IntRange(0, 40).Draw(t, "waiters") {
			w := &pending.Instance{
				ID: fleet.NewInstanceID(uint64(n)), Index: -1, Ordinal: rapid.IntRange(0, 2).Draw(t, "ordinal"),
				Rank: pending.Rank{Priority: rapid.IntRange(-1, 1).Draw(t, "priority"), Weight: rapid.IntRange(0, 1).Draw(t, "weight")}, Age: rapid.Int64Range(0, 2).Draw(t, "age"),
			}
			q.Add(w)
			q.Add(w) // twice must have no effect
			in = append(in, w)
		}
		in = slices.DeleteFunc(in, func(w *pending.Instance) bool {
			gone := rapid.Bool().Draw(t, "leaves")
			if gone {
				q.Remove(w)
			}
			return gone
		})
		var last *pending.Instance
		for range in {
			w := q.Next()
			if w == nil || w.Index != -1 || last != nil && w.Before(last) {
				t.Fatalf("%+v came after %+v", w, last)
			}
			last = w
		}
		if w := q.Next(); w != nil {
			t.Fatalf("%+v is left", w)
		}
	})
}

// exact checks in the store that no resources and no port were given away twice, and
// returns the number of placements.
func (l *lagging) exact(nodes []fleet.NodeID, memory int) (placed int) {
	l.t.Helper()
	for _, n := range nodes {
		on, _, err := store.List(l.t.Context(), l.c, keys.PlacementsOn(n))
		if err != nil {
			l.t.Fatal(err)
		}
		used, ports := 0, map[int]bool{}
		for _, p := range on {
			s, err := store.Get(l.t.Context(), l.c, keys.Status(p.Instance))
			if err == nil && s.State.Terminal() {
				continue
			} else if err != nil && !errs.Is(err, errs.NotFound) {
				l.t.Fatal(err)
			}
			used += p.Resources.MemoryMiB
			if ports[p.Port] {
				l.t.Errorf("port %d of %s twice", p.Port, n)
			}
			ports[p.Port] = true
			placed++
		}
		if used > memory {
			l.t.Errorf("%d MiB on %s, which has %d", used, n, memory)
		}
	}
	return placed
}

// TestHoweverFarTheViewIsBehindNothingIsOvercommitted runs random steps of the fleet and of
// two controllers, one of which sees the store late.
func TestHoweverFarTheViewIsBehindNothingIsOvercommitted(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			l := newLagging(t)
			random := rand.New(rand.NewPCG(seed, 1))
			nodes := []fleet.NodeID{"n1", "n2"}
			for _, n := range nodes {
				l.node(n, 60)
			}
			var ids []fleet.InstanceID
			for step := range 40 {
				switch random.IntN(6) {
				case 0:
					ids = append(ids, l.want(fleet.GroupName(fmt.Sprintf("g%d", step)), 1+random.IntN(4), nil)...)
				case 1: // another scheduler's placement, or a cordon
					n := nodes[random.IntN(2)]
					a, _ := store.Get(t.Context(), l.c, keys.Alloc(n))
					b := store.Bulk{Parts: []store.Part{{Writes: []store.Write{touch(n, a.ModRev)}}}}
					if _, _, err := l.c.CommitBulk(t.Context(), b); err != nil { // it may lose to a transaction in progress
						t.Fatal(err)
					}
				case 2:
					l.finishOne(ids, random)
				case 3:
					l.showAll()
				case 4:
					l.ctl.depth = random.IntN(3)
					l.ctl.window = random.IntN(2) * windowStep
					l.ctl.pass(t.Context(), time.Now())
				case 5:
					l.pass()
				}
			}
			l.ctl.depth = depthLimit
			l.until("everything is decided", func() bool {
				l.showAll()
				l.pass()
				return len(l.ctl.state.assumed) == 0 && len(l.ctl.state.ready) == 0 && len(l.ctl.retries) == 0
			})
			living := 0
			for _, id := range ids {
				if i, _ := l.view.Snapshot().Instances.Get(id); !i.Terminal() {
					living++
				}
			}
			if placed := l.exact(nodes, 60); placed != min(living, 12) {
				t.Errorf("%d placed of %d in the room of 12", placed, living)
			}
		})
	}
}

// finishOne reports a placed instance as ended.
func (l *lagging) finishOne(ids []fleet.InstanceID, random *rand.Rand) {
	l.t.Helper()
	for _, at := range random.Perm(len(ids)) {
		i, _ := l.view.Snapshot().Instances.Get(ids[at])
		if i.Placement != nil && i.Status == nil {
			l.write(store.Create(keys.Status(ids[at]), fleet.Status{
				Instance: ids[at], Node: i.Placement.Node, Generation: 1, State: fleet.Stopped, Reason: fleet.ReasonStopRequested, FinishedAt: time.Now(),
			}))
			return
		}
	}
}

// until makes passes until a condition holds.
func (l *lagging) until(what string, ok func() bool) {
	l.t.Helper()
	for deadline := time.Now().Add(await.Patience); !ok(); {
		if time.Now().After(deadline) {
			s := l.ctl.state
			l.t.Fatalf("not %s: %d assumed, %d ready, %d waiting, %d losers, %d under way", what, len(s.assumed), len(s.ready), len(s.waiters), len(l.ctl.retries), l.ctl.inProgress)
		}
	}
}
