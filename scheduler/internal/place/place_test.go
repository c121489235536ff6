package place_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

var process = []fleet.NodeRuntime{{Name: fleet.RuntimeProcess, Offered: true}, {Name: fleet.RuntimeTmux, Why: "tmux is not installed"}}

func node(id fleet.NodeID, change ...func(*place.Node)) place.Node {
	n := place.Node{
		ID: id, Live: true, Runtimes: process,
		Capacity: fleet.Resources{MemoryMiB: 1000, CPU: 400, DiskMiB: 10_000},
	}
	for _, c := range change {
		c(&n)
	}
	return n
}

func model(nodes ...place.Node) *place.Model {
	m := place.NewModel()
	for _, n := range nodes {
		m.SetNode(n, nil)
	}
	return m
}

func request(change ...func(*place.Request)) *place.Request {
	r := &place.Request{ID: "abc123", Group: "lobby", Plan: &fleet.Plan{
		Runtime: fleet.RuntimeProcess, Resources: fleet.Resources{MemoryMiB: 100}, Ports: fleet.PortRange{Start: 100, End: 102},
	}}
	for _, c := range change {
		c(r)
	}
	return r
}

func TestReasonsOfWaiting(t *testing.T) {
	if _, u := model().Place(request()); u.Reason != fleet.ReasonNoNodes {
		t.Errorf("without nodes: %+v", u)
	}
	if _, u := model(node("n")).Place(request(func(r *place.Request) { r.Pinned = "gone" })); u.Reason != fleet.ReasonPinnedWaiting {
		t.Errorf("pinned: %+v", u)
	}
}

func TestTheFilterThatExcludesMostStandsFirst(t *testing.T) {
	m := model(node("a", func(n *place.Node) { n.Cordoned = true }), node("b"), node("c"))
	_, u := m.Place(request(func(r *place.Request) { r.Plan.Resources.MemoryMiB = 2000 }))
	if len(u.Lost) != 2 || u.Lost[0].Filter != "memory" || u.Lost[0].Nodes != 2 || u.Nodes != 3 {
		t.Errorf("%+v", u)
	}
}

func TestOfEqualNodesTheOneWithMostFreeMemoryWins(t *testing.T) {
	m := model(node("a", func(n *place.Node) { n.Capacity.MemoryMiB = 900 }), node("b"), node("c", func(n *place.Node) { n.Capacity.MemoryMiB = 900 }))
	m.Charge(place.HoldOf("b", "other", fleet.Resources{MemoryMiB: 0}, 0, nil))
	m.Release(place.HoldOf("b", "other", fleet.Resources{MemoryMiB: 0}, 0, nil))
	m.Charge(place.HoldOf("a", "x", fleet.Resources{MemoryMiB: 300}, 0, nil))
	m.Charge(place.HoldOf("b", "x", fleet.Resources{MemoryMiB: 100}, 0, nil))
	m.Charge(place.HoldOf("c", "x", fleet.Resources{MemoryMiB: 500}, 0, nil))
	if c, u := m.Place(request()); u != nil || c.Node != "b" {
		t.Errorf("chose %+v, %+v", c, u)
	}
}

func TestPorts(t *testing.T) {
	m := place.NewModel()
	m.SetNode(node("n"), []int{100})
	first, _ := m.Place(request())
	if first.Port != 101 {
		t.Errorf("port %d, want the lowest that no stranger holds", first.Port)
	}
	again, _ := m.Place(request(func(r *place.Request) { r.PreferredNode, r.PreferredPort = "n", 102 }))
	if again.Port != 102 {
		t.Errorf("port %d, want the one it had before", again.Port)
	}
	if _, u := m.Place(request()); u == nil || u.Lost[0].Filter != "ports" {
		t.Errorf("a full range: %+v", u)
	}
	m.SetNode(node("n"), nil) // the foreign program has released the port
	if c, u := m.Place(request()); u != nil || c.Port != 100 {
		t.Errorf("port %d, %+v", c.Port, u)
	}
	m.Release(first.Hold)
	if c, u := m.Place(request()); u != nil || c.Port != 101 {
		t.Errorf("a released port is not given again: %d, %+v", c.Port, u)
	}
}

func TestAdditionalPortsAreDistinctAndNamed(t *testing.T) {
	m := model(node("n"))
	r := request(func(r *place.Request) {
		r.Plan.AdditionalPorts = []fleet.NamedPort{{Name: "query", Protocol: "udp", Range: r.Plan.Ports}, {Name: "rcon", Protocol: "tcp", Range: r.Plan.Ports}}
	})
	c, u := m.Place(r)
	if u != nil || c.Port != 100 || c.Ports["query"] != 101 || c.Ports["rcon"] != 102 {
		t.Errorf("%+v, %+v", c, u)
	}
}

// drawModel draws a small fleet.
func drawModel(t *rapid.T) (nodes []place.Node, m *place.Model) {
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		nodes = append(nodes, node(fleet.NodeID(fmt.Sprintf("n%d", i)), func(n *place.Node) {
			n.Live = rapid.IntRange(0, 4).Draw(t, "live") > 0
			n.Cordoned = rapid.IntRange(0, 4).Draw(t, "cordoned") == 0
			n.Capacity = fleet.Resources{MemoryMiB: rapid.IntRange(0, 500).Draw(t, "memory"), CPU: rapid.IntRange(0, 400).Draw(t, "cpu"), DiskMiB: 100}
			n.CPULoad = rapid.Float64Range(0, 1).Draw(t, "load")
		}))
	}
	return nodes, model(nodes...)
}

func drawRequest(t *rapid.T, n int) *place.Request {
	return request(func(r *place.Request) {
		r.ID = fleet.NewInstanceID(uint64(n))
		r.Plan.Resources = fleet.Resources{MemoryMiB: rapid.IntRange(0, 200).Draw(t, "wantMemory"), CPU: rapid.IntRange(0, 150).Draw(t, "wantCPU")}
		start := rapid.IntRange(100, 104).Draw(t, "start")
		r.Plan.Ports = fleet.PortRange{Start: start, End: start + rapid.IntRange(0, 5).Draw(t, "ports")}
		if rapid.Bool().Draw(t, "additional") {
			r.Plan.AdditionalPorts = []fleet.NamedPort{{Name: "q", Range: fleet.PortRange{Start: 102, End: 108}}}
		}
	})
}

func TestNothingIsEverGivenTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, m := drawModel(t)
		used := map[fleet.NodeID]fleet.Resources{}
		ports := map[string]bool{}
		var placed []place.Choice
		for n := range rapid.IntRange(1, 40).Draw(t, "requests") {
			if len(placed) > 0 && rapid.IntRange(0, 3).Draw(t, "release") == 0 {
				c := placed[0]
				placed = placed[1:]
				m.Release(c.Hold)
				used[c.Node] = used[c.Node].Sub(c.Hold.Resources)
				for _, p := range c.Hold.Ports {
					delete(ports, fmt.Sprint(c.Node, p))
				}
			}
			r := drawRequest(t, n)
			c, unfit := m.Place(r)
			if unfit != nil {
				total := 0
				for _, l := range unfit.Lost {
					total += l.Nodes
				}
				if total != len(nodes) {
					t.Fatalf("%d nodes lost of %d: %+v", total, len(nodes), unfit.Lost)
				}
				continue
			}
			placed = append(placed, c)
			used[c.Node] = used[c.Node].Add(r.Plan.Resources)
			for _, p := range c.Hold.Ports {
				if ports[fmt.Sprint(c.Node, p)] {
					t.Fatalf("port %d of %s was given twice", p, c.Node)
				}
				ports[fmt.Sprint(c.Node, p)] = true
			}
		}
		for _, n := range nodes {
			if u := used[n.ID]; u.MemoryMiB > n.Capacity.MemoryMiB || u.CPU > n.Capacity.CPU {
				t.Fatalf("%s holds %+v of %+v", n.ID, u, n.Capacity)
			}
		}
	})
}

func TestTheSameQuestionHasTheSameAnswer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, m := drawModel(t)
		other := place.NewModel()
		for i := len(nodes) - 1; i >= 0; i-- { // the nodes arrive in another order
			other.SetNode(nodes[i], nil)
		}
		for n := range 10 {
			r := drawRequest(t, n)
			a, ua := m.Place(r)
			b, ub := other.Place(r)
			if a.Node != b.Node || a.Port != b.Port || (ua == nil) != (ub == nil) {
				t.Fatalf("%+v %+v, then %+v %+v", a, ua, b, ub)
			}
		}
	})
}
