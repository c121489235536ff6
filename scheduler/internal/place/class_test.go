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

func TestOfEqualScoresTheMostFreeMemoryWins(t *testing.T) {
	for _, big := range []fleet.NodeID{"a", "b", "c"} { // each node once, so that the hash cannot decide
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

// A model with a cached ranking must answer like a model without one, whatever changed in
// between.
func TestARankingKeptSaysWhatAFreshOneSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kept, fresh := place.NewModel(), place.NewModel()
		both := func(f func(*place.Model)) { f(kept); f(fresh) }
		set := func(id fleet.NodeID) {
			n, blocked := drawNode(t, id), anyPorts.Draw(t, "blocked")
			both(func(m *place.Model) { m.SetNode(n, blocked) })
		}
		for range 3 {
			set(anyNode.Draw(t, "first"))
		}
		plans := []*fleet.Plan{drawPlan(t), drawPlan(t), drawPlan(t)}
		now := time.Unix(1_000_000, 0)
		var placed []place.Choice
		for n := range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 12).Draw(t, "step") {
			case 0:
				set(anyNode.Draw(t, "node"))
			case 1:
				id := anyNode.Draw(t, "gone")
				both(func(m *place.Model) { m.RemoveNode(id) })
			case 2:
				if len(placed) > 0 {
					at := rapid.IntRange(0, len(placed)-1).Draw(t, "released")
					both(func(m *place.Model) { m.Release(placed[at].Hold) })
					placed = append(placed[:at], placed[at+1:]...)
				}
			case 3:
				id, g := anyNode.Draw(t, "failing"), anyGroup.Draw(t, "failed")
				for range 5 {
					both(func(m *place.Model) { m.Failed(id, g, 1, now) })
				}
			case 4:
				now = now.Add(2 * time.Minute)
				both(func(m *place.Model) { m.Expire(now) })
			case 5:
				own, onlyOwn := maybe(t, "own", anyNode), rapid.Bool().Draw(t, "onlyOwn")
				both(func(m *place.Model) { m.Prefer(func(n fleet.NodeID) bool { return n >= own }, onlyOwn) })
			default:
				r := drawAsked(t, n, plans)
				c, u := kept.Place(&r)
				copied := *r.Plan
				r.Plan = &copied // the copy is a new plan, so nothing is cached for it
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

// The test exceeds the bounds of the cache several times.
func TestRankingsAreForgottenInTimeAndMadeAnew(t *testing.T) {
	m := model(node("n0"), node("n1"))
	var requests []*place.Request
	for n := range 300 {
		requests = append(requests, request(func(r *place.Request) { r.Group = fleet.GroupName(fmt.Sprintf("g%d", n)) }))
	}
	for n := range 20_000 {
		c, u := m.Place(requests[(n/3)%len(requests)])
		if u != nil {
			t.Fatal(u.Message)
		}
		m.Release(c.Hold)
	}
	for n := range 1500 { // these change nothing; only their number is bounded
		if _, u := m.Place(request(func(r *place.Request) { r.Group, r.Plan.Runtime = fleet.GroupName(fmt.Sprintf("h%d", n)), "vm" })); u == nil {
			t.Fatal("it was placed")
		}
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
