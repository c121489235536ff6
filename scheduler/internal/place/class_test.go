package place_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

func TestOfEqualScoresTheMostFreeMemoryWins(t *testing.T) {
	for _, big := range []fleet.NodeID{"a", "b", "c"} { // whatever the hash says
		m := place.NewModel()
		for _, id := range []fleet.NodeID{"a", "b", "c"} {
			m.SetNode(node(id, func(n *place.Node) {
				if id == big {
					n.Capacity.MemoryMiB = 64_000
				}
			}), nil)
		}
		if c, u := m.Place(request()); u != nil || c.Node != big {
			t.Errorf("chose %+v, %+v, want the empty node with most memory, %s", c.Node, u, big)
		}
	}
}

var sameScore = cmp.Comparer(func(a, b place.Score) bool { return a == b })

// A model that has answered for a plan before must answer like one that has not,
// whatever happened in between.
func TestARankingKeptSaysWhatAFreshOneSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kept, fresh := place.NewModel(), place.NewModel()
		set := func(id fleet.NodeID) {
			n := node(id, func(n *place.Node) {
				n.Live = rapid.IntRange(0, 4).Draw(t, "live") > 0
				n.Cordoned = rapid.IntRange(0, 4).Draw(t, "cordoned") == 0
				n.Capacity.MemoryMiB = rapid.IntRange(0, 500).Draw(t, "memory")
				n.CPULoad = rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "load")
				if zone := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "zone"); zone != "" {
					n.Labels = map[string]string{"zone": zone}
				}
			})
			blocked := rapid.SliceOfNDistinct(rapid.IntRange(100, 104), 0, 3, rapid.ID[int]).Draw(t, "blocked")
			kept.SetNode(n, blocked)
			fresh.SetNode(n, blocked)
		}
		anyNode := rapid.SampledFrom([]fleet.NodeID{"n0", "n1", "n2", "n3", "n4"})
		for range 3 {
			set(anyNode.Draw(t, "first"))
		}
		var plans []*fleet.Plan
		for range 3 {
			p := drawRequest(t, 0).Plan
			p.Where.Affinity = rapid.SampledFrom([][]string{nil, {"zone"}, {"zone=a"}}).Draw(t, "affinity")
			p.Where.Spread = rapid.SampledFrom([]string{"", "", "zone"}).Draw(t, "spread")
			plans = append(plans, p)
		}
		var placed []place.Choice
		for n := range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				set(anyNode.Draw(t, "node"))
			case 1:
				id := anyNode.Draw(t, "gone")
				kept.RemoveNode(id)
				fresh.RemoveNode(id)
			case 2:
				if len(placed) > 0 {
					at := rapid.IntRange(0, len(placed)-1).Draw(t, "released")
					kept.Release(placed[at].Hold)
					fresh.Release(placed[at].Hold)
					placed = append(placed[:at], placed[at+1:]...)
				}
			default:
				plan := rapid.SampledFrom(plans).Draw(t, "plan")
				r := place.Request{ID: fleet.NewInstanceID(uint64(n)), Group: "lobby", Plan: plan}
				c, u := kept.Place(&r)
				copied := *plan
				r.Plan = &copied // a plan never asked for: nothing is kept of it
				cf, uf := fresh.Place(&r)
				if diff := cmp.Diff(cf, c, sameScore); diff != "" {
					t.Fatal(diff)
				}
				if diff := cmp.Diff(uf, u); diff != "" {
					t.Fatal(diff)
				}
				if u == nil {
					placed = append(placed, c)
				}
			}
		}
	})
}

// The bounds of what is kept are passed several times over.
func TestRankingsAreForgottenInTimeAndMadeAnew(t *testing.T) {
	m := model(node("n0"), node("n1"))
	var requests []*place.Request
	for n := range 200 {
		requests = append(requests, request(func(r *place.Request) { r.Group = fleet.GroupName(fmt.Sprintf("g%d", n)) }))
	}
	for n := range 20_000 {
		c, u := m.Place(requests[(n/3)%len(requests)])
		if u != nil {
			t.Fatal(u.Message)
		}
		m.Release(c.Hold)
	}
	m.SetNode(node("n0", func(n *place.Node) { n.Cordoned = true }), nil)
	for _, r := range requests {
		c, u := m.Place(r)
		if u != nil || c.Node != "n1" {
			t.Fatalf("chose %+v, %+v although n0 is cordoned", c, u)
		}
		m.Release(c.Hold)
	}
}
