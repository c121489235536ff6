package place_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// drawFleet draws a fleet of any nodes with some placed instances, and more requests.
func drawFleet(t *rapid.T) (*place.Model, []place.Request) {
	m := place.NewModel()
	for _, id := range []fleet.NodeID{"n0", "n1", "n2", "n3", "n4"} {
		m.SetNode(drawNode(t, id), anyPorts.Draw(t, "blocked"))
	}
	plans := []*fleet.Plan{drawPlan(t), drawPlan(t), drawPlan(t)}
	for n := range 4 {
		r := drawAsked(t, n, plans)
		m.Place(&r)
		m.Failed(anyNode.Draw(t, "failed"), r.Group, r.Plan.GroupRevision, time.Time{})
	}
	var requests []place.Request
	for n := range 8 {
		requests = append(requests, drawAsked(t, 100+n, plans))
	}
	return m, requests
}

func TestWhatIsExplainedIsWhatIsDecided(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, requests := drawFleet(t)
		for _, r := range requests {
			e := m.Explain(&r, 3, "")
			c, u := m.Place(&r)
			if diff := cmp.Diff(e.Unfit, u); diff != "" {
				t.Fatalf("explained and decided differ:\n%s", diff)
			}
			if u == nil && (e.Best[0].Node != c.Node || e.Best[0].Score != c.Score || e.Best[0].Rank != 1) {
				t.Fatalf("explained %+v, decided %+v", e.Best[0], c)
			}
		}
	})
}

func TestACopyAndItsModelDoNotTouchEachOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, requests := drawFleet(t)
		decide := func(m *place.Model) (out []any) {
			for _, r := range requests {
				c, u := m.Place(&r)
				out = append(out, c, u)
			}
			return out
		}
		first := decide(m.Clone())
		disturbed := m.Clone()
		decide(disturbed)
		for _, id := range []fleet.NodeID{"n0", "n1"} {
			disturbed.Cordon(id)
			disturbed.Lose(id)
			disturbed.Failed(id, "lobby", 1, time.Time{})
		}
		if diff := cmp.Diff(first, decide(m), cmp.Comparer(func(a, b place.Score) bool { return a == b })); diff != "" {
			t.Fatalf("a copy decides otherwise than its model:\n%s", diff)
		}
	})
}

func TestTheNodeAskedAboutIsShownWhereverItStands(t *testing.T) {
	m := model(node("a"), node("b"), node("c", func(n *place.Node) { n.Cordoned = true }))
	m.Charge(place.Hold{Node: "b", Group: "x", Resources: fleet.Resources{MemoryMiB: 500}})
	for id, want := range map[fleet.NodeID]place.Candidate{
		"a": {Node: "a", Rank: 1}, "b": {Node: "b", Rank: 2}, "c": {Node: "c", Filter: "cordon", Fix: "uncordon c"},
	} {
		e := m.Explain(request(), 1, id)
		if e.Here == nil || e.Here.Node != want.Node || e.Here.Rank != want.Rank || e.Here.Filter != want.Filter || e.Here.Fix != want.Fix {
			t.Errorf("%s: %+v, want %+v", id, e.Here, want)
		}
		if len(e.Best) != 1 || e.Best[0].Node != "a" || e.Nodes != 3 || len(e.Lost) != 1 {
			t.Errorf("%s: %+v", id, e)
		}
	}
	if e := m.Explain(request(), 1, "nowhere"); e.Here != nil {
		t.Errorf("a node nobody knows is %+v", e.Here)
	}
}

func TestALostNodeKeepsWhatItHoldsAndTakesNothing(t *testing.T) {
	m := model(node("a"))
	m.Lose("a")
	if _, u := m.Place(request()); u == nil || u.Lost[0].Filter != "session" {
		t.Errorf("%+v", u)
	}
}

// BenchmarkQuestion measures one what-if question: cloning the model and judging all nodes.
func BenchmarkQuestion(b *testing.B) {
	for _, nodes := range []int{1000, 5000} {
		m := place.NewModel()
		for n := range nodes {
			id := fleet.NodeID(fmt.Sprintf("node-%d", n))
			m.SetNode(node(id), nil)
			for i := range 20 {
				m.Charge(place.Hold{Node: id, Group: fleet.GroupName(fmt.Sprint("g", i%4)), Resources: fleet.Resources{MemoryMiB: 10}, Ports: []int{30000 + i}})
			}
		}
		for name, r := range map[string]*place.Request{
			"fits":   request(),
			"unfit":  request(func(r *place.Request) { r.Plan.Resources.MemoryMiB = 5000 }),
			"spread": request(func(r *place.Request) { r.Plan.Where.Spread = "zone" }),
		} {
			b.Run(fmt.Sprintf("%s/%d-nodes", name, nodes), func(b *testing.B) {
				for b.Loop() {
					m.Clone().Explain(r, 5, "node-7")
				}
			})
		}
	}
}
