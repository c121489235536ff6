package place_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

func TestAnExplanationReadsLikeThis(t *testing.T) {
	m := model(
		node("a", func(n *place.Node) { n.Cordoned = true }),
		node("b", func(n *place.Node) { n.Live = false }),
		node("c"), node("d"),
		node("e", func(n *place.Node) { n.Labels = map[string]string{"zone": "west"} }),
	)
	m.Charge(place.Hold{Node: "c", Group: "x", Resources: fleet.Resources{MemoryMiB: 600}})
	m.Charge(place.Hold{Node: "d", Group: "x", Resources: fleet.Resources{MemoryMiB: 500}})
	_, u := m.Place(request(func(r *place.Request) {
		r.Plan.Resources.MemoryMiB = 700
		r.Plan.Where.AntiAffinity = []string{"zone=west"}
	}))
	want := &place.Unfit{
		Reason: fleet.ReasonNoNodeFits, Nodes: 5,
		Message: "0 of 5 nodes can take it: 2 by memory (d has 500 MiB free of 1000, 200 more are needed); " +
			"1 by cordon (uncordon a); 1 by labels (on e remove the label zone=west); 1 by session (start the agent of b)",
		Lost: []fleet.FilterLoss{
			{Filter: "memory", Nodes: 2, Fix: "d has 500 MiB free of 1000, 200 more are needed"},
			{Filter: "cordon", Nodes: 1, Fix: "uncordon a"},
			{Filter: "labels", Nodes: 1, Fix: "on e remove the label zone=west"},
			{Filter: "session", Nodes: 1, Fix: "start the agent of b"},
		},
	}
	if diff := cmp.Diff(want, u); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsChargedIsReleasedInFull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, m := drawModel(t)
		// ask compares models by their answers to many requests.
		ask := func() (answers []string) {
			var held []place.Hold
			for n := range 12 {
				r := request(func(r *place.Request) {
					r.ID, r.Plan.Resources = fleet.NewInstanceID(uint64(n)), fleet.Resources{MemoryMiB: 40 * n, CPU: 20 * n}
				})
				c, u := m.Place(r)
				if u != nil {
					answers = append(answers, u.Message)
					continue
				}
				held, answers = append(held, c.Hold), append(answers, fmt.Sprintf("%s:%d %v", c.Node, c.Port, c.Score))
			}
			for _, h := range held {
				m.Release(h)
			}
			return answers
		}
		before := ask()
		var held []place.Hold
		for n := range rapid.IntRange(1, 10).Draw(t, "instances") {
			if c, u := m.Place(drawRequest(t, 100+n)); u == nil {
				held = append(held, c.Hold)
			}
		}
		for _, h := range rapid.Permutation(held).Draw(t, "order") {
			m.Release(h)
		}
		if after := ask(); !slices.Equal(before, after) {
			t.Fatalf("before %v\nafter %v", before, after)
		}
	})
}

func TestOneAloneIsPlacedWheneverANodeCouldTakeIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, m := drawModel(t)
		for i := range nodes {
			if rapid.Bool().Draw(t, "labelled") {
				nodes[i].Labels = map[string]string{"zone": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone")}
				m.SetNode(nodes[i], nil)
			}
		}
		r := drawRequest(t, 1)
		r.Plan.Where.Affinity = rapid.SampledFrom([][]string{nil, {"zone"}, {"zone=a"}}).Draw(t, "affinity")
		r.Plan.Where.AntiAffinity = rapid.SampledFrom([][]string{nil, {"zone"}, {"zone=b"}}).Draw(t, "antiAffinity")
		r.Plan.Where.Nodes = rapid.SampledFrom([][]fleet.NodeID{nil, {"*"}, {"n0", "n2"}}).Draw(t, "list")
		r.Pinned = rapid.SampledFrom([]fleet.NodeID{"", "", "n1"}).Draw(t, "pinned")
		r.Plan.Runtime = rapid.SampledFrom([]fleet.RuntimeName{fleet.RuntimeProcess, fleet.RuntimeProcess, fleet.RuntimeTmux}).Draw(t, "runtime")

		can := map[fleet.NodeID]bool{}
		for _, n := range nodes {
			zone, labelled := n.Labels["zone"]
			can[n.ID] = n.Live && !n.Cordoned && (r.Pinned == "" || r.Pinned == n.ID) && r.Plan.Where.Allows(n.ID) &&
				r.Plan.Runtime == fleet.RuntimeProcess && r.Plan.Resources.Fits(n.Capacity) &&
				allOf(r.Plan.Where.Affinity, func(l string) bool { return l == "zone" && labelled || l == "zone="+zone }) &&
				allOf(r.Plan.Where.AntiAffinity, func(l string) bool { return !(l == "zone" && labelled || l == "zone="+zone) })
		}
		c, u := m.Place(r)
		if u != nil {
			for id, ok := range can {
				if ok {
					t.Fatalf("%s can take it, yet: %s", id, u.Message)
				}
			}
			return
		}
		if !can[c.Node] {
			t.Fatalf("%s cannot take it", c.Node)
		}
	})
}

func allOf(labels []string, ok func(string) bool) bool {
	return !slices.ContainsFunc(labels, func(l string) bool { return !ok(l) })
}

func TestTheScoreIsTheSumOfItsParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, m := drawModel(t)
		c, u := m.Place(drawRequest(t, 1))
		if u != nil {
			return
		}
		sum := 0.0
		for part, v := range c.Score.Parts() {
			if v < 0 {
				t.Fatalf("%s is below 0: %v", part, c.Score.Parts())
			}
			if part != "total" {
				sum += v
			}
		}
		if total := c.Score.Total(); math.Abs(sum-total) > 0.005 || total > 1 {
			t.Fatalf("%v add up to %v", c.Score.Parts(), sum)
		}
	})
}

func TestANodeThatLeavesIsNotCountedAndKeepsWhatItHolds(t *testing.T) {
	m := model(node("n"))
	only := func(r *place.Request) { r.Plan.Ports = fleet.PortRange{Start: 100, End: 100} }
	if _, u := m.Place(request(only)); u != nil {
		t.Fatal(u.Message)
	}
	m.RemoveNode("n")
	m.RemoveNode("never-there")
	if _, u := m.Place(request(only)); u == nil || u.Reason != fleet.ReasonNoNodes || u.Nodes != 0 {
		t.Errorf("without the node: %+v", u)
	}
	m.SetNode(node("n"), nil)
	if _, u := m.Place(request(only)); u == nil || u.Lost[0].Filter != "ports" {
		t.Errorf("after its return: %+v", u)
	}
}

func TestWhatIsHeldIsKnownBeforeItsNode(t *testing.T) {
	m := place.NewModel()
	m.Charge(place.HoldOf("n", "lobby", fleet.Resources{MemoryMiB: 950}, 100, nil))
	if _, u := m.Place(request()); u == nil || u.Reason != fleet.ReasonNoNodes {
		t.Errorf("a node that never joined was counted: %+v", u)
	}
	m.SetNode(node("n"), nil)
	if _, u := m.Place(request()); u == nil || u.Lost[0].Filter != "memory" {
		t.Errorf("%+v", u)
	}
}

func TestAModelDoesNotGrowWithNodesThatComeAndGo(t *testing.T) {
	m := model(node("stays"))
	r := request()
	now := time.Unix(1_000_000, 0)
	for n := range 1000 {
		id := fleet.NodeID(fmt.Sprint("n", n))
		m.SetNode(node(id, func(n *place.Node) { n.Capacity.MemoryMiB = 10_000 }), []int{7})
		c, u := m.Place(r)
		if u != nil || c.Node != id {
			t.Fatalf("chose %+v, %+v, want %s", c, u, id)
		}
		m.Failed(id, "lobby", 1, now)
		m.RemoveNode(id)
		m.Release(c.Hold)
		now = now.Add(2 * place.FailureWindow)
		m.Expire(now)
	}
	if known, kept := m.Slots(); known != 1 || kept > 3 {
		t.Errorf("%d nodes are known, %d slots kept", known, kept)
	}
	if c, u := m.Clone().Place(r); u != nil || c.Node != "stays" {
		t.Errorf("a copy chose %+v, %+v", c, u)
	}
}
