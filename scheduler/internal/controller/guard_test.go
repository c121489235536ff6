package controller

import (
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestNothingIsPlacedOnANodeThatWasDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	node := l.node("n1", 100)
	id := l.want("lobby", 1, nil)[0]
	l.showAll()
	l.write(store.Remove(keys.Node("n1"), node), store.Remove(keys.NodeSession("n1"), node)) // nothing was ever placed on it
	l.pass()
	if on := l.placedOn(id); len(on) > 0 {
		t.Fatalf("placed on %v, which is gone", on)
	}
	l.node("n2", 100)
	l.showAll()
	l.pass()
	l.wantOn(id, "n2")
}

func TestANodeThatShrankMeanwhileIsNotGivenMoreThanItHas(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	rev := l.node("n1", 100)
	ids := l.want("lobby", 10, nil)
	l.showAll()
	l.write(store.Replace(keys.Node("n1"), fleet.Node{
		ID: "n1", Capacity: fleet.Resources{MemoryMiB: 30, CPU: 1000, DiskMiB: 1000}, Runtimes: []fleet.NodeRuntime{{Name: fleet.RuntimeProcess, Offered: true}},
	}, rev))
	for range 3 {
		l.pass()
		l.showAll()
	}
	if got := l.exact([]fleet.NodeID{"n1"}, 30); got != 3 {
		t.Errorf("%d of %d placed in the room of 3", got, len(ids))
	}
}

func TestDataIsNotLaidOnANodeThatIsLost(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	session := l.node("n1", 100_000)
	l.node("n2", 100)
	id := l.want("world", 1, func(s *fleet.GroupSpec) { s.Static.Enabled = true })[0]
	l.showAll()
	l.write(store.Remove(keys.NodeSession("n1"), session))
	l.pass()
	l.showAll()
	l.pass()
	l.wantOn(id, "n2")
}
