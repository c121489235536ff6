package place_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

func loaded(id fleet.NodeID, load float64) place.Node {
	return node(id, func(n *place.Node) { n.CPULoad = load })
}

func TestABusyNodeTakesNothingNewWhileAnotherIsBelowTheBound(t *testing.T) {
	m := place.NewModel()
	m.SetMaxCPU(0.95)
	m.SetNode(node("busy", func(n *place.Node) { n.CPULoad, n.Capacity.MemoryMiB = 0.96, 100_000 }), nil)
	m.SetNode(loaded("calm", 0.95), nil)
	if c, u := m.Place(request()); u != nil || c.Node != "calm" {
		t.Errorf("chose %s, %+v", c.Node, u)
	}
	large := request(func(r *place.Request) { r.Plan.Resources.MemoryMiB = 5000 })
	_, u := m.Place(large)
	if u == nil || !strings.Contains(u.Message, "1 by load (busy uses 96.0 % of its processors") {
		t.Errorf("what only the busy node has room for: %+v", u)
	}
	if here := m.Explain(large, 1, "busy").Here; here == nil || here.Filter != "load" || !strings.Contains(here.Fix, "max-cpu") {
		t.Errorf("explained as %+v", here)
	}
	if m.FitsWithout(large, "busy", nil) {
		t.Error("room is made, or an instance moved, where nothing new is taken")
	}
	pinned := request(func(r *place.Request) { r.Pinned = "busy" })
	if c, u := m.Place(pinned); u != nil || c.Node != "busy" {
		t.Errorf("data on the busy node: %s, %+v", c.Node, u)
	}
	if m.Cooled() {
		t.Error("it says that a node uses less, which none does")
	}
	m.Cordon("calm") // nothing is better than the busy one now
	if c, u := m.Place(large); u != nil || c.Node != "busy" || !m.Cooled() || m.Cooled() {
		t.Errorf("when all are busy: %s, %+v", c.Node, u)
	}
}

func TestOnlyAKnownLoadAboveTheBoundExcludesANode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.SampledFrom([]float64{0, 0.5, 0.95, 1}).Draw(t, "most")
		m := place.NewModel()
		m.SetMaxCPU(most)
		loads := map[fleet.NodeID]float64{}
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			id := fleet.NodeID(fmt.Sprintf("n%d", rapid.IntRange(0, 4).Draw(t, "node")))
			if rapid.IntRange(0, 4).Draw(t, "leaves") == 0 {
				m.RemoveNode(id)
				delete(loads, id)
			} else {
				loads[id] = rapid.SampledFrom([]float64{0, -1, math.NaN(), 0.3, 0.5, 0.51, 0.95, 0.96, 1}).Draw(t, "load")
				m.SetNode(loaded(id, loads[id]), nil)
			}
			calm := false
			for _, load := range loads {
				calm = calm || !(load > most)
			}
			for id, load := range loads {
				want := most > 0 && most < 1 && load > most && calm
				r := request(func(r *place.Request) { r.Plan.Where.Nodes = []fleet.NodeID{id} })
				got := false
				if c, u := m.Place(r); u == nil {
					m.Release(c.Hold)
				} else {
					got = strings.Contains(u.Message, "by load")
				}
				if got != want {
					t.Fatalf("%s with a load of %v is excluded: %v, want %v; all: %v", id, load, got, want, loads)
				}
			}
		}
	})
}
