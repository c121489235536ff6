package controller

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// drain drains the node, or ends its drain, as the gateway does.
func (w *world) drain(d *fleet.NodeDrain) {
	w.t.Helper()
	next, rev := fleet.NodeDesired{Node: node, Cordoned: d != nil, Drain: d}, int64(0)
	if have, ok := w.view.Snapshot().NodesDesired.Get(node); ok {
		rev = have.ModRev
	}
	w.commit(store.Replace(keys.NodeDesired(node), next, rev))
}

// quick does not wait for players on the way.
func quick() plan.Limits {
	l := plan.DefaultLimits()
	l.RetireGrace = time.Millisecond
	return l
}

func TestEachStepOfADrainIsTakenByAnyEnforcer(t *testing.T) {
	w := newWorld(t)
	// step runs an enforcer of its own until a condition holds.
	step := func(replica, what string, ok func(*view.Snapshot) bool) {
		t.Helper()
		_, stop := w.enforcer(replica, quick())
		w.until(what, ok)
		stop()
	}
	w.group("world", func(g *fleet.Group) { g.Spec.Scaling.Min = 1 })
	step("a", "an instance", func(s *view.Snapshot) bool { return len(living(s, "world")) == 1 })
	first := w.untilLiving("world", 1)[0].Intent.ID
	w.online(first)
	w.drain(&fleet.NodeDrain{ID: "d", By: "alice", At: time.Now().UTC(), TimeoutSeconds: fleet.MaxDrainSeconds})

	step("b", "another one", func(s *view.Snapshot) bool { return len(living(s, "world")) == 2 })
	if i, _ := w.view.Snapshot().Instances.Get(first); i.Retiring() {
		t.Fatal("the first one retires before the other one is ready")
	}
	for _, i := range w.untilLiving("world", 2) {
		if id := i.Intent.ID; id != first {
			w.commit(
				store.Create(keys.Placement("node-2", id), fleet.Placement{Instance: id, Group: "world", Node: "node-2", Generation: 1, PlacedAt: time.Now().UTC()}),
				store.Create(keys.Status(id), fleet.Status{Instance: id, Group: "world", Node: "node-2", Generation: 1, State: fleet.Online, ChangedAt: time.Now().UTC()}),
				store.Create(keys.NodeSession("node-2"), fleet.NodeSession{Node: "node-2", StartedAt: time.Now().UTC()}),
			)
		}
	}
	step("c", "the retirement of the first", func(s *view.Snapshot) bool {
		i, _ := s.Instances.Get(first)
		return i.Intent.Retire != nil || i.Intent.Desired == fleet.DesiredStopped
	})
	step("d", "the end of the first", func(s *view.Snapshot) bool {
		i, _ := s.Instances.Get(first)
		return i.Intent.Desired == fleet.DesiredStopped && i.Order != nil && i.Order.Reason == fleet.ReasonNodeDrained
	})
	w.report(first, fleet.Stopped, fleet.ReasonNodeDrained)
}

func TestAStaticInstanceIsDownDuringADrainAndStartsAgainAfterIt(t *testing.T) {
	w := newWorld(t)
	w.enforcer("a", quick())
	w.group("world", func(g *fleet.Group) { g.Spec.Scaling.Min, g.Spec.Static.Enabled = 1, true })
	id := w.untilLiving("world", 1)[0].Intent.ID
	w.online(id)
	w.drain(&fleet.NodeDrain{ID: "d", By: "alice", At: time.Now().UTC(), TimeoutSeconds: 60})
	if o := w.untilOrder(id, fleet.OrderStop); o.Reason != fleet.ReasonNodeDrained || o.By != "alice" {
		t.Errorf("ordered %+v", o)
	}
	w.report(id, fleet.Stopped, fleet.ReasonNodeDrained)
	w.drain(&fleet.NodeDrain{ID: "d", By: "alice", At: time.Now().UTC(), TimeoutSeconds: 60, CompletedAt: time.Now().UTC()})
	w.drain(nil)
	s := w.until("the next generation", func(s *view.Snapshot) bool {
		i, _ := s.Instances.Get(id)
		return i.Intent.Generation == 2 && i.Intent.Desired == fleet.DesiredRunning
	})
	if i, _ := s.Instances.Get(id); i.Intent.Reason != fleet.ReasonNodeReady || s.Instances.Len() != 1 {
		t.Errorf("it starts for %s, with %d instances", i.Intent.Reason, s.Instances.Len())
	}
}

func TestARetirementEndsWithTheDrain(t *testing.T) {
	w := newWorld(t)
	l := plan.DefaultLimits()
	l.RetireGrace = time.Hour
	w.enforcer("a", l)
	w.group("world", func(g *fleet.Group) { g.Spec.Scaling.Min, g.Spec.Static.Enabled = 1, true })
	id := w.untilLiving("world", 1)[0].Intent.ID
	w.online(id)
	retires := func(s *view.Snapshot) bool {
		i, _ := s.Instances.Get(id)
		return i.Retiring()
	}
	w.drain(&fleet.NodeDrain{ID: "d", By: "alice", At: time.Now().UTC(), TimeoutSeconds: 600})
	w.until("the retirement", retires)
	w.drain(nil)
	w.until("the end of the retirement", func(s *view.Snapshot) bool { return !retires(s) })
}
