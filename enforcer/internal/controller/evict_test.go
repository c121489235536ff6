package controller

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// evict writes an eviction, as the scheduler does.
func (w *world) evict(id fleet.InstanceID, why fleet.Reason, beneficiary fleet.InstanceID) {
	w.t.Helper()
	i, _ := w.view.Snapshot().Instances.Get(id)
	w.commit(store.Create(keys.Eviction(id), fleet.Eviction{
		Instance: id, Generation: i.Intent.Generation, Node: i.Node(), Reason: why, Message: "because", For: beneficiary, At: time.Now().UTC(),
	}))
}

func (w *world) untilSettled(id fleet.InstanceID) *fleet.Instance {
	w.t.Helper()
	s := w.until("the eviction of "+string(id)+" settled", func(s *view.Snapshot) bool {
		_, evicted := s.Evictions.Get(id)
		return !evicted
	})
	i, _ := s.Instances.Get(id)
	return i
}

func TestWhatMakesRoomIsStoppedAsNoCrashAndWaitsForRoomItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enforcer("a", plan.DefaultLimits())
	w.group("low", func(g *fleet.Group) { g.Spec.Scaling.Min = 1 })
	victim := w.untilLiving("low", 1)[0].Intent.ID
	w.online(victim)
	w.group("high", func(g *fleet.Group) { g.Spec.Priority, g.Spec.Preempts = 50, true })
	high := w.create("high")
	w.evict(victim, fleet.ReasonPreempted, high)
	if o := w.untilOrder(victim, fleet.OrderStop); o.Reason != fleet.ReasonPreempted || o.Message != "because" {
		t.Errorf("the order does not say why: %+v", o)
	}
	w.report(victim, fleet.Stopped, fleet.ReasonPreempted)
	next := w.untilLiving("low", 1)[0]
	if next.Intent.ID == victim || !next.NeedsPlacement() {
		t.Errorf("nobody waits in its place: %+v", next.Intent)
	}
	if _, kept := w.view.Snapshot().Evictions.Get(victim); !kept {
		t.Error("the room is not kept for whom it was made")
	}
	w.place(high)
	if i := w.untilSettled(victim); len(i.Crashes()) > 0 {
		t.Errorf("it counts as a crash: %+v", i)
	}
}

func TestWhatIsMovedServesUntilItsReplacementDoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enforcer("a", plan.DefaultLimits())
	w.group("lobby", func(g *fleet.Group) { g.Spec.Scaling.Min, g.Spec.Scaling.Max, g.Spec.Rebalance = 1, 1, true })
	first := w.untilLiving("lobby", 1)[0].Intent.ID
	w.online(first)
	w.evict(first, fleet.ReasonRebalanced, "")
	second := w.untilLiving("lobby", 2)
	replacement := second[0]
	if replacement.Intent.ID == first {
		replacement = second[1]
	}
	if replacement.Intent.Replaces != first || replacement.Intent.Reason != fleet.ReasonRebalanced {
		t.Errorf("the other is not its replacement: %+v", replacement.Intent)
	}
	if i, _ := w.view.Snapshot().Instances.Get(first); i.Order != nil {
		t.Errorf("it was stopped before its replacement was ready: %+v", i.Order)
	}
	w.online(replacement.Intent.ID)
	if o := w.untilOrder(first, fleet.OrderStop); o.Reason != fleet.ReasonRebalanced {
		t.Errorf("the order does not say why: %+v", o)
	}
	w.report(first, fleet.Stopped, fleet.ReasonRebalanced)
	w.untilSettled(first)
	if left := w.untilLiving("lobby", 1); left[0].Intent.ID != replacement.Intent.ID {
		t.Errorf("the wrong one is left: %+v", left[0].Intent)
	}
}

func TestAnEvictionOfOneWithPlayersIsVoid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	limits := plan.DefaultLimits()
	w.group("low", func(*fleet.Group) {})
	id := w.create("low")
	w.online(id)
	w.commit(store.Create(keys.Report(node), reports.Report{Node: node, Instances: map[fleet.InstanceID]reports.InstanceReport{id: {Players: 1}}}))
	w.group("high", func(g *fleet.Group) { g.Spec.Priority, g.Spec.Preempts = 50, true })
	w.evict(id, fleet.ReasonPreempted, w.create("high"))
	w.enforcer("a", limits)
	if i := w.untilSettled(id); i.Order != nil || i.Intent.Desired != fleet.DesiredRunning {
		t.Errorf("it was stopped: %+v", i)
	}
}

func TestNoEvictionAndNoCredentialOutlivesItsInstance(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world, victim fleet.InstanceID){
		"its group is deleted": func(w *world, _ fleet.InstanceID) {
			w.change("low", func(g *fleet.Group) { g.Deleting = true })
		},
		"it has ended and its records are too many": func(w *world, victim fleet.InstanceID) {
			w.intent(victim, stopped)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := plan.DefaultLimits()
			l.KeepRecords, l.KeepFor = 0, time.Millisecond
			w := newWorld(t)
			w.group("low", func(*fleet.Group) {})
			victim := w.create("low")
			w.online(victim)
			w.group("high", func(g *fleet.Group) { g.Spec.Priority, g.Spec.Preempts = 50, true })
			w.evict(victim, fleet.ReasonPreempted, w.create("high")) // the requesting scheduler has lost its shard since
			w.commit(store.Create(keys.Credential(victim), account.InstanceCredential{Instance: victim, Root: "r", Serial: 1}))
			end(w, victim)
			_, stop := w.enforcer("a", l)
			w.untilOrder(victim, fleet.OrderStop)
			stop() // another enforcer continues
			w.enforcer("b", l)
			w.report(victim, fleet.Stopped, fleet.ReasonStopRequested)
			s := w.until("its records to go", func(s *view.Snapshot) bool { _, ok := s.Instances.Get(victim); return !ok })
			if _, left := s.Credentials.Get(victim); left {
				t.Error("the record of its tokens is left")
			}
			if _, left := s.Evictions.Get(victim); left || s.Orphans.Len() > 0 || !w.gone(victim) {
				t.Errorf("records are left: %v\n%s", left, dump(s))
			}
		})
	}
}
