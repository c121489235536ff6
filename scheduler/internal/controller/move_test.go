package controller_test

import (
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/scheduler/client"
)

// movedTo requests the next generation of an ended instance, with its data copied to a node.
func (w *world) movedTo(id fleet.InstanceID, node fleet.NodeID, dataUUID string) {
	w.t.Helper()
	i, _ := w.view.Snapshot().Instances.Get(id)
	next := i.Intent
	next.Generation++
	next.MovesTo = &fleet.DataCopy{Node: node, DataUUID: dataUUID, Generation: i.Intent.Generation}
	w.commit(store.Replace(keys.Intent(id), next, i.Intent.ModRev))
}

func TestAMovedInstanceIsPlacedWithItsCopy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("n1", "first")
	ask, _ := w.answering()
	id := w.want(w.group("world", func(s *fleet.GroupSpec) { s.Static.Enabled = true }), 1)[0]
	first := w.await(id, "placed", placed)
	alone := w.simulate(ask, client.Question{Move: &client.MoveQuestion{Instance: id}})
	if why := "0 of 1 nodes can take it: 1 by source (it is already on n1)"; alone.Pending != 1 || alone.Unfit[0].Message != why {
		t.Errorf("without another node: %+v, want %q", alone, why)
	}
	w.join("n2", "second")
	if got := w.simulate(ask, client.Question{Move: &client.MoveQuestion{Instance: id}}); got.Placed != 1 || got.Instances[0].Node != "n2" || got.Instances[0].From != "n1" {
		t.Errorf("the scheduler would choose %+v", got)
	}
	if got := w.simulate(ask, client.Question{Move: &client.MoveQuestion{Instance: id, Node: "n1"}}); got.Pending != 1 {
		t.Errorf("its own node is %+v", got)
	}
	w.finish(first)
	w.movedTo(id, "n2", "another")
	w.await(id, "waiting for its copy", waiting(fleet.ReasonDataLost))
	i, _ := w.view.Snapshot().Instances.Get(id)
	next := i.Intent
	next.MovesTo = nil // the move failed
	w.commit(store.Replace(keys.Intent(id), next, i.Intent.ModRev))
	second := w.await(id, "placed where it was", func(i *fleet.Instance) bool { return i.Placement != nil && i.Placement.Generation == 2 })
	if second.Placement.Node != "n1" {
		t.Fatalf("it is on %s", second.Placement.Node)
	}
	w.commit(store.Replace(keys.Status(id), fleet.Status{Instance: id, Node: "n1", Generation: 2, State: fleet.Stopped, Reason: fleet.ReasonMoved}, second.Status.ModRev))
	w.movedTo(id, "n2", "second")
	third := w.await(id, "placed with its copy", func(i *fleet.Instance) bool { return i.Placement != nil && i.Placement.Generation == 3 })
	if third.Placement.Node != "n2" || third.Placement.DataUUID != "second" || third.Moved() != nil {
		t.Errorf("it is placed as %+v", third.Placement)
	}
}

func TestADrainThatMovesSharesTheRoomOfTheTargets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ask, _ := w.answering()
	w.node("n1", 1000)
	group := w.group("world", func(s *fleet.GroupSpec) { s.Static.Enabled, s.Resources.MemoryMiB = true, 60 })
	ids := w.want(group, 2)
	for _, id := range ids {
		w.await(id, "placed", placed)
	}
	w.node("n2", 85)
	drain := client.DrainQuestion{Node: "n1", MoveStatic: true}
	if got := w.simulate(ask, client.Question{Drain: &drain}); got.Placed != 1 || got.Pending != 1 || got.Kept != 0 {
		t.Errorf("the drain is %+v", got)
	}
	drain.Also = []fleet.NodeID{"n2"}
	if got := w.simulate(ask, client.Question{Drain: &drain}); got.Pending != 2 {
		t.Errorf("the drain of both nodes is %+v", got)
	}
	w.commit(store.Create(keys.Move(ids[0]), move.Move{ID: "m", Instance: ids[0], Group: "world", Source: "n1", Target: "n2", Generation: 1, Step: move.Copying}))
	if got := w.simulate(ask, client.Question{Move: &client.MoveQuestion{Instance: ids[1]}}); got.Pending != 1 {
		t.Errorf("the room of an instance that moves is given away: %+v", got)
	}
}
