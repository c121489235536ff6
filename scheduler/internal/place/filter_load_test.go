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
	m.SetNode(loaded("idle", 0.95), nil)
	large := request(func(r *place.Request) { r.Plan.Resources.MemoryMiB = 950 })
	if m.AwaitsLoad(request(func(r *place.Request) { r.Plan.Resources.MemoryMiB = 200_000 })) {
		t.Error("what no node has room for waits for the load of one")
	}
	if c, u := m.Place(request()); u != nil || c.Node != "idle" {
		t.Errorf("chose %s, %+v", c.Node, u)
	}
	_, u := m.Place(large)
	if u == nil || !strings.Contains(u.Message, "1 by load (busy uses 96.0 % of its processors") || !m.AwaitsLoad(large) {
		t.Errorf("what only the busy node has room for now: %+v", u)
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
	m.Cordon("idle") // now no alternative to the busy node remains
	if c, u := m.Place(large); u != nil || c.Node != "busy" {
		t.Errorf("when all are busy: %s, %+v", c.Node, u)
	}
}

func TestANodeThatCanNeverHoldAnInstanceIsNoAlternativeToABusyOne(t *testing.T) {
	for what, c := range map[string]struct {
		ask  func(*place.Request)
		idle func(*place.Node)
	}{
		"it is not among the group's nodes": {func(r *place.Request) { r.Plan.Where.Nodes = []fleet.NodeID{"busy"} }, func(*place.Node) {}},
		"its labels do not match":           {func(r *place.Request) { r.Plan.Where.AntiAffinity = []string{"rack=a"} }, func(n *place.Node) { n.Labels = map[string]string{"rack": "a"} }},
		"it does not offer the runtime":     {func(*place.Request) {}, func(n *place.Node) { n.Runtimes = []fleet.NodeRuntime{{Name: fleet.RuntimeDocker, Offered: true}} }},
		"it is cordoned":                    {func(*place.Request) {}, func(n *place.Node) { n.Cordoned = true }},
		"it has no session":                 {func(*place.Request) {}, func(n *place.Node) { n.Live = false }},
		"it is too small":                   {func(*place.Request) {}, func(n *place.Node) { n.Capacity.MemoryMiB = 99 }},
	} {
		m := place.NewModel()
		m.SetMaxCPU(0.95)
		m.SetNode(loaded("busy", 0.96), nil)
		m.SetNode(loaded("idle", 0.5), nil)
		r := request(c.ask)
		if c, u := m.Place(request()); u != nil || c.Node != "idle" { // the ranking sees both nodes before one changes
			t.Errorf("%s: before, %s, %+v", what, c.Node, u)
		}
		n := loaded("idle", 0.5)
		c.idle(&n)
		m.SetNode(n, nil)
		if c, u := m.Place(r); u != nil || c.Node != "busy" {
			t.Errorf("%s: %s, %+v", what, c.Node, u)
		}
	}
}

func TestOnlyAKnownLoadAboveTheBoundExcludesANode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.SampledFrom([]float64{0, 0.5, 0.95, 1}).Draw(t, "most")
		m := place.NewModel()
		m.SetMaxCPU(most)
		loads, r := map[fleet.NodeID]float64{}, request()
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			id := fleet.NodeID(fmt.Sprintf("n%d", rapid.IntRange(0, 4).Draw(t, "node")))
			if rapid.IntRange(0, 4).Draw(t, "leaves") == 0 {
				m.RemoveNode(id)
				delete(loads, id)
			} else {
				loads[id] = rapid.SampledFrom([]float64{0, -1, math.NaN(), 0.3, 0.5, 0.51, 0.95, 0.96, 1}).Draw(t, "load")
				m.SetNode(loaded(id, loads[id]), nil)
			}
			alternative := false
			for _, load := range loads {
				alternative = alternative || !(load > most)
			}
			for id, load := range loads {
				want := most > 0 && most < 1 && load > most && alternative
				here := m.Explain(r, 0, id).Here
				if got := here.Filter == "load"; got != want {
					t.Fatalf("%s with a load of %v is excluded: %v, want %v; all: %v", id, load, here.Filter == "load", want, loads)
				}
			}
		}
	})
}
