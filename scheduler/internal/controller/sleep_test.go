package controller_test

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// sleeps reports that a placed instance sleeps.
func (w *world) sleeps(i *fleet.Instance) {
	w.t.Helper()
	next := i.Intent
	next.Sleep = &fleet.Nap{At: time.Now(), Reason: fleet.ReasonAsleep}
	w.commit(
		store.Replace(keys.Intent(next.ID), next, i.Intent.ModRev),
		store.Create(keys.Status(next.ID), fleet.Status{Instance: next.ID, Node: i.Placement.Node, Generation: next.Generation, State: fleet.Sleeping, Reason: fleet.ReasonAsleep}))
}

// wakes requests the generation that wakes an instance.
func (w *world) wakes(id fleet.InstanceID) {
	w.t.Helper()
	i, _ := w.view.Snapshot().Instances.Get(id)
	next := i.Intent
	next.Generation, next.Sleep = next.Generation+1, nil
	w.commit(store.Replace(keys.Intent(id), next, i.Intent.ModRev))
}

func TestASleepingInstanceFreesItsMemoryAndWakesOnItsPortWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule("a")
	w.node("n1", 10) // room for one
	g := w.group("tight", nil)
	first := w.await(w.want(g, 1)[0], "placed", placed)
	w.sleeps(first)
	second := w.await(w.want(g, 1)[0], "placed in the memory of the sleeping one", placed)
	if second.Placement.Port == first.Placement.Port {
		t.Errorf("it got port %d of the sleeping instance", second.Placement.Port)
	}
	w.wakes(first.Intent.ID)
	w.node("n2", 1000)
	i := w.await(first.Intent.ID, "waiting", waiting(fleet.ReasonPinnedWaiting))
	if i.State() != fleet.Unplaced || i.Placement.Generation != 1 {
		t.Errorf("it is %s with %+v", i.State(), i.Placement)
	}
	w.finish(second)
	i = w.await(first.Intent.ID, "placed", placed)
	if p := i.Placement; p.Node != "n1" || p.Port != first.Placement.Port {
		t.Errorf("it woke on %s:%d, and slept on n1:%d", p.Node, p.Port, first.Placement.Port)
	}
	third := w.await(w.want(g, 1)[0], "placed", placed)
	if third.Placement.Node != "n2" {
		t.Errorf("the memory of the woken instance was given out twice: %+v", third.Placement)
	}
}

func TestASleepingInstanceWithTheOnlyPortOfItsGroupWakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule("a")
	w.node("n1", 1000)
	g := w.group("one", func(s *fleet.GroupSpec) {
		s.Ports = fleet.PortRange{Start: 25565, End: 25565}
		s.Quota.Instances = 2
	})
	first := w.await(w.want(g, 1)[0], "placed", placed)
	w.sleeps(first)
	w.await(w.want(g, 1)[0], "waiting for the port", waiting(fleet.ReasonNoNodeFits))
	w.wakes(first.Intent.ID)
	w.await(first.Intent.ID, "placed", placed)
}

func TestASleepingInstanceWakesElsewhereIfItsNodeIsCordoned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule("a")
	w.node("n1", 1000)
	first := w.await(w.want(w.group("lobby", nil), 1)[0], "placed", placed)
	w.sleeps(first)
	w.commit(store.Create(keys.NodeDesired("n1"), fleet.NodeDesired{Node: "n1", Cordoned: true}))
	w.node("n2", 1000)
	w.wakes(first.Intent.ID)
	if i := w.await(first.Intent.ID, "placed", placed); i.Placement.Node != "n2" {
		t.Errorf("placed on %s", i.Placement.Node)
	}
}
