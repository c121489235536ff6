package controller

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/spawn"
	"github.com/orreryhq/orrery/libs/store/view"
)

// untilState waits until an instance is in a state.
func (w *world) untilState(id fleet.InstanceID, state fleet.State) *fleet.Instance {
	w.t.Helper()
	s := w.until(string(id)+" "+string(state), func(s *view.Snapshot) bool {
		i, ok := s.Instances.Get(id)
		return ok && i.State() == state
	})
	i, _ := s.Instances.Get(id)
	return i
}

func TestALostNodesInstancesAreReplacedAndTheSurplusGoesWhenItReturns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enforcer("a", plan.DefaultLimits())
	w.group("lobby", func(g *fleet.Group) { g.Spec.Scaling.Min = 1 })
	first := w.untilLiving("lobby", 1)[0].Intent.ID
	w.online(first)
	w.lose()
	lost := w.untilState(first, fleet.Offline)
	if lost.Status.Reason != fleet.ReasonNodeLost || lost.Status.Message == "" {
		t.Errorf("it does not say why: %+v", lost.Status)
	}
	second := w.untilLiving("lobby", 1)[0]
	if second.Intent.ID == first || second.Intent.Replaces != first || second.Intent.Name != "lobby-2" {
		t.Fatalf("not a replacement beside the lost one: %+v", second.Intent)
	}
	// The agent returns and has kept the instance running all the time.
	w.join()
	w.report(first, fleet.Online, fleet.ReasonAdopted)
	w.until("the replacement stopped", func(s *view.Snapshot) bool {
		i, ok := s.Instances.Get(second.Intent.ID)
		return ok && i.Intent.Desired == fleet.DesiredStopped && i.Intent.Stop.Reason == fleet.ReasonNodeReturned
	})
	if i, _ := w.view.Snapshot().Instances.Get(first); i.Intent.Desired != fleet.DesiredRunning || i.Order != nil {
		t.Errorf("the one that never stopped was touched: %+v", i)
	} else if i.Intent.ReplacedBy != "" || i.Intent.Displaced {
		t.Errorf("it still counts as replaced: %+v", i.Intent)
	}
}

func TestAStaticInstanceWaitsForItsNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.static()
	w.lose()
	lost := w.untilState(id, fleet.Offline)
	w.join()
	w.report(id, fleet.Online, fleet.ReasonAdopted)
	if i := w.untilState(id, fleet.Online); i.Intent.Generation != lost.Intent.Generation {
		t.Errorf("a new generation was asked for: %+v", i.Intent)
	}
}

func TestAStaticInstanceMovesWhereItsGroupSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.static(func(g *fleet.Group) { g.Spec.OnNodeLoss = fleet.NodeLossReplace })
	w.lose()
	moved := w.until("the next generation", func(s *view.Snapshot) bool {
		i, ok := s.Instances.Get(id)
		return ok && i.Intent.Generation == 2
	})
	i, _ := moved.Instances.Get(id)
	if !i.Moving() || !i.NeedsPlacement() || i.Intent.Name != "world-1" {
		t.Errorf("it is not on its way: %+v", i)
	}
	// The node returns with the old copy before the new one is placed.
	w.join()
	w.report(id, fleet.Online, fleet.ReasonAdopted)
	if o := w.untilOrder(id, fleet.OrderStop); o.Generation != 1 {
		t.Errorf("the order is not for the old copy: %+v", o)
	}
}

func TestANodeThatWasBackMeanwhileIsLeftForItsNewLossOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.static(func(g *fleet.Group) { g.Spec.OnNodeLoss = fleet.NodeLossReplace })
	w.lose()
	asked := func(generation int64) func(*view.Snapshot) bool {
		return func(s *view.Snapshot) bool {
			i, _ := s.Instances.Get(id)
			record, _ := s.Nodes.Get(node)
			return i.Intent.Generation == generation && i.MayLeave(record.ModRev)
		}
	}
	w.until("the next generation", asked(2))
	w.join()
	w.lose()
	w.until("another one for the new loss", asked(3))
}

// The node joins and leaves again after the plan and before its transaction arrives.
func TestANextGenerationComparesThatTheLostNodeHasNotJoinedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.group("world", func(g *fleet.Group) { g.Spec.Static.Enabled, g.Spec.OnNodeLoss = true, fleet.NodeLossReplace })
	id := w.create("world")
	w.place(id)
	w.lose()
	w.report(id, fleet.Offline, fleet.ReasonNodeLost)
	elsewhere := func() store.Txn {
		s := w.view.Snapshot()
		g, _ := s.Groups.Get("world")
		i, _ := s.Instances.Get(id)
		sp := spawn.New(s, time.Now(), random())
		return sp.Txns([]spawn.Birth{sp.Elsewhere(g, i, spawn.Cause{Reason: fleet.ReasonNodeLost})}, nil, nil, w.client.MaxOps())[0]
	}
	stale := elsewhere()
	w.join()
	w.lose()
	if _, err := w.client.Commit(t.Context(), stale); !errs.Is(err, errs.Conflict) {
		t.Fatalf("a generation was asked for because of an earlier loss: %v, want a conflict", err)
	}
	if _, err := w.client.Commit(t.Context(), elsewhere()); err != nil {
		t.Errorf("for this loss none was asked for: %v", err)
	}
}

func TestReleasedInstancesMoveAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.static(func(g *fleet.Group) { g.Spec.OnNodeLoss = fleet.NodeLossReplace })
	s := w.view.Snapshot()
	record, _ := s.Nodes.Get(node)
	session, _ := s.NodeSessions.Get(node)
	closed := *record
	closed.Released, closed.SessionTTLSeconds = true, 3600
	w.commit(store.Remove(keys.NodeSession(node), session.ModRev), store.Replace(keys.Node(node), closed, record.ModRev))
	w.until("the next generation", func(s *view.Snapshot) bool {
		i, _ := s.Instances.Get(id)
		return i.Intent.Generation == 2
	})
}

func TestADeletedNodeGivesUpWhatItHeldAndGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	record, _ := w.view.Snapshot().Nodes.Get(node)
	id := w.static()
	w.commit(store.Create(keys.NodeDesired(node), fleet.NodeDesired{Node: node, Deleted: true, By: "alice"}),
		store.Create(keys.Players(node, 5), players.PresencePart{Part: 5}))
	w.lose()
	s := w.until("the node's records gone", func(s *view.Snapshot) bool {
		_, known := s.Nodes.Get(node)
		_, wished := s.NodesDesired.Get(node)
		return !known && !wished && s.PlayerParts.Len() == 0
	})
	if gone, err := store.Get(t.Context(), w.client, keys.DeletedNode(node)); err != nil || gone.Record != record.ModRev || gone.By != "alice" {
		t.Errorf("the deletion is remembered as %+v, %v; the record was of revision %d", gone, err, record.ModRev)
	}
	i, _ := s.Instances.Get(id)
	if i.Status.State != fleet.Stopped || i.Status.Reason != fleet.ReasonNodeDeleted {
		t.Errorf("its instance has not ended: %+v", i.Status)
	}
	w.until("the next generation", func(s *view.Snapshot) bool {
		i, ok := s.Instances.Get(id)
		return ok && i.Intent.Generation == 2 && i.NeedsPlacement()
	})
}

func TestAPlacementUnderWayKeepsADeletedNode(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{false, true} { // whether anything was placed there before
		w := newWorld(t)
		w.commit(store.Create(keys.NodeDesired(node), fleet.NodeDesired{Node: node, Deleted: true}))
		var rev int64
		if before {
			rev = w.commit(store.Create(keys.Alloc(node), fleet.Alloc{Node: node}))
		}
		w.lose()
		s := w.view.Snapshot()
		record, _ := s.Nodes.Get(node)
		txn := removal(s, node, store.FenceOf(keys.Node(node), record.CreateRev))
		w.commit(store.Replace(keys.Alloc(node), fleet.Alloc{Node: node}, rev)) // a placement touches it
		if _, err := w.client.Commit(t.Context(), txn); !errs.Is(err, errs.Conflict) {
			t.Errorf("the node was removed with something on it: %v, want a conflict", err)
		}
	}
}

func TestADeletedNodeThatSomethingLeavesIsLookedAt(t *testing.T) {
	t.Parallel()
	on := func(n fleet.NodeID) *fleet.Instance {
		return &fleet.Instance{Placement: &fleet.Placement{Node: n, Generation: 1}, Intent: fleet.Intent{Generation: 1}}
	}
	tests := map[string]struct {
		change view.Change
		want   int
	}{
		"by being moved":            {view.Change{Kind: view.KindPlacement, InstanceBefore: on(node), Instance: on("node-2")}, 1},
		"by being forgotten":        {view.Change{Kind: view.KindIntent, InstanceBefore: on(node)}, 1},
		"unless it has not left it": {view.Change{Kind: view.KindPlacement, InstanceBefore: on(node), Instance: on(node)}, 0},
	}
	for how, tt := range tests {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t)
			w.commit(store.Create(keys.NodeDesired(node), fleet.NodeDesired{Node: node, Deleted: true}))
			c, err := New(Config{
				Store: w.client, View: view.New(w.client, nil, Kinds()...), Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Limits: plan.DefaultLimits(),
			})
			if err != nil {
				t.Fatal(err)
			}
			c.changed(view.Batch{After: w.view.Snapshot(), Changes: []view.Change{tt.change}}) // it owns no group
			if got := c.queue.Stats().Ready; got != tt.want {
				t.Errorf("%d keys are queued, want %d", got, tt.want)
			}
		})
	}
}

func TestWhenAMassOutageEndsEveryGroupIsLookedAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	limits := plan.DefaultLimits()
	limits.MassLossNodes = 2
	w.enforcer("a", limits)
	const other = fleet.NodeID("node-2")
	w.commit(store.Create(keys.Node(other), fleet.Node{ID: other, SessionTTLSeconds: 1}), store.Create(keys.NodeSession(other), fleet.NodeSession{Node: other}))
	w.group("lobby", minimum(1))
	first := w.untilLiving("lobby", 1)[0].Intent.ID
	w.online(first)
	w.group("world", func(g *fleet.Group) { g.Spec.Scaling.Min, g.Spec.Static.Enabled = 1, true })
	elsewhere := w.untilLiving("world", 1)[0].Intent
	w.commit(store.Create(keys.Placement(other, elsewhere.ID), fleet.Placement{
		Instance: elsewhere.ID, Group: elsewhere.Group, Node: other, Generation: 1, Plan: elsewhere.Plan,
	}))

	s := w.view.Snapshot()
	one, _ := s.NodeSessions.Get(node)
	two, _ := s.NodeSessions.Get(other)
	w.commit(store.Remove(keys.NodeSession(node), one.ModRev), store.Remove(keys.NodeSession(other), two.ModRev))
	w.untilState(elsewhere.ID, fleet.Offline)
	if i := w.untilState(first, fleet.Offline); i.Intent.ReplacedBy != "" {
		t.Fatalf("replaced while all nodes are lost: %+v", i.Intent)
	}
	// The node whose return ends the outage has no instance of the group.
	w.commit(store.Create(keys.NodeSession(other), fleet.NodeSession{Node: other}))
	w.untilLiving("lobby", 1)
}
