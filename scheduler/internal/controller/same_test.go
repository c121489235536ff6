package controller

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/scheduler/internal/facts"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// drawn returns a random fleet with waiting instances, quotas, reservations and resources
// kept for some instances.
func drawn(t *testing.T, seed uint64) *lagging {
	t.Helper()
	l := newLagging(t)
	random := rand.New(rand.NewPCG(seed, 3))
	for n := range 4 {
		id := fleet.NodeID(fmt.Sprint("n", n))
		l.node(id, 60+20*random.IntN(4))
		l.desire(fleet.NodeDesired{Node: id, Labels: map[string]string{"zone": string(rune('a' + random.IntN(2)))}, Cordoned: random.IntN(8) == 0})
	}
	l.write(store.Create(keys.Quota("alice"), cluster.Quota{
		Name: "alice", Selector: map[string]string{"tenant": "alice"}, Limit: fleet.Budget{MemoryMiB: 60}, Reserved: fleet.Budget{MemoryMiB: 20 * random.IntN(2)},
	}))
	var low []fleet.InstanceID
	for n := range 5 {
		ids := l.want(fleet.GroupName(fmt.Sprint("g", n)), 2+random.IntN(5), func(s *fleet.GroupSpec) {
			s.Priority = 10 * random.IntN(3)
			s.Resources.MemoryMiB = 10 + 10*random.IntN(3)
			if random.IntN(2) == 0 {
				s.Labels = map[string]string{"tenant": "alice"}
			}
			s.Quota.Instances = 5 * random.IntN(2)
			s.Reserved.MemoryMiB = 10 * random.IntN(2)
			s.Where.MaxPerNode = random.IntN(3)
			s.Where.Alone = random.IntN(6) == 0
			if random.IntN(3) == 0 {
				s.Where.Spread, s.Where.MaxSkew = "zone", random.IntN(3)
			}
		})
		if n == 1 { // some of the first group's instances are placed, the others wait
			l.settle()
			low = ids
		}
	}
	waiting := l.want("high", 2, func(s *fleet.GroupSpec) { s.Resources.MemoryMiB = 30 })
	for n, id := range l.placedAnywhere(low) {
		if n < len(waiting) {
			i, _ := l.view.Snapshot().Instances.Get(id)
			l.write(store.Create(keys.Eviction(id), fleet.Eviction{Instance: id, Generation: 1, Node: i.Placement.Node, Reason: fleet.ReasonPreempted, For: waiting[n]}))
		}
	}
	return l
}

func (l *lagging) placedAnywhere(ids []fleet.InstanceID) (out []fleet.InstanceID) {
	for _, id := range ids {
		if i, _ := l.view.Snapshot().Instances.Get(id); i.Placement != nil {
			out = append(out, id)
		}
	}
	return out
}

// moment returns the Moment that a caller of Ask would get now.
func (l *lagging) moment() *facts.Moment {
	l.t.Helper()
	to := make(chan facts.Moment, 1)
	l.ctl.asks.waiting[to] = struct{}{}
	l.ctl.answer(time.Now())
	m := <-to
	m.Model = m.Model.Clone()
	return &m
}

var sameScore = cmp.Comparer(func(a, b place.Score) bool { return a == b })

func TestWhatIsToldIsWhatIsDecided(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("fleet ", seed), func(t *testing.T) {
			l := drawn(t, seed)
			l.showAll()
			l.ctl.catchUp(time.Now())
			told := l.moment()
			waiting := told.Waiting()
			var requests []*place.Request
			for _, i := range waiting {
				stored, _ := told.Snap.Plans.Get(i.Intent.Plan)
				requests = append(requests, facts.Request(i, &stored.Plan, told.Snap))
			}
			first := l.moment()
			plan, _ := first.Snap.Plans.Get(waiting[0].Intent.Plan)
			explained := first.Explain(waiting[0], &plan.Plan, 1, "")
			outcomes := told.PlaceAll(requests, func() bool { return true })

			l.ctl.depth = 0 // decides everything from one state and sends nothing
			l.ctl.pass(t.Context(), time.Now())
			for n, i := range waiting {
				want := outcomes[n]
				e := l.ctl.state.assumed[i.Intent.ID]
				if e == nil {
					if want.Unfit == nil {
						t.Fatalf("%s waits, told %+v", i.Intent.Name, want.Choice)
					}
					if got := l.ctl.state.waiters[i.Intent.ID].Class.Verdict; got.Reason != want.Unfit.Reason {
						t.Errorf("%s waits for %s, told %s", i.Intent.Name, got.Message, want.Unfit.Message)
					}
					continue
				}
				if diff := cmp.Diff(want.Choice, e.choice, sameScore); diff != "" {
					t.Fatalf("%s was told another place, %+v:\n%s", i.Intent.Name, want.Unfit, diff)
				}
				if n == 0 && (len(explained.Best) == 0 || explained.Best[0].Node != e.choice.Node || explained.Best[0].Score != e.choice.Score) {
					t.Errorf("%s is on %s, explained %+v", i.Intent.Name, e.choice.Node, explained)
				}
			}
			if again := l.moment(); !cmp.Equal(again.Nominated, first.Nominated) { // later decisions are not part of the snapshot
				t.Errorf("kept %+v, before %+v", again.Nominated, first.Nominated)
			}
		})
	}
}

func TestRoomThatIsMadeForAnInstanceIsItsOwnWhenItIsExplained(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 20)
	id := l.taken("other", nil)
	first := l.want("first", 1, func(s *fleet.GroupSpec) { s.Resources.MemoryMiB = 20 })[0]
	l.write(store.Create(keys.Eviction(id), fleet.Eviction{Instance: id, Generation: 1, Node: "n1", Reason: fleet.ReasonPreempted, For: first}))
	l.settle()
	m := l.moment()
	i, _ := m.Snap.Instances.Get(first)
	stored, _ := m.Snap.Plans.Get(i.Intent.Plan)
	e := m.Explain(i, &stored.Plan, 1, "")
	if e.Unfit == nil || e.Unfit.Message != l.note(first).Message {
		t.Errorf("explained %+v, the decision says %q", e.Unfit, l.note(first).Message)
	}
}
