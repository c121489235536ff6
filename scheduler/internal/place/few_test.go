package place_test

import (
	"fmt"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

func TestShuffledRequestsChooseAmongTheBestFewEqualNodes(t *testing.T) {
	m := place.NewModel()
	for i := range 100 {
		m.SetNode(node(fleet.NodeID(fmt.Sprintf("n%02d", i)), inZone(fmt.Sprint(i%3), func(n *place.Node) {
			n.CPULoad = float64(max(0, i-7)) / 100 // the first eight are equal
		})), nil)
	}
	for _, spread := range []string{"", "zone"} {
		seen := map[fleet.NodeID]int{}
		for seed := range uint64(200) {
			r := request(func(r *place.Request) { r.Shuffle, r.Plan.Where.Spread = seed+1, spread })
			c := chosen(t, m, r)
			if again := chosen(t, m, r); again.Node != c.Node {
				t.Fatalf("seed %d chose %s, then %s", seed, c.Node, again.Node)
			}
			seen[c.Node]++
		}
		for i := range 8 {
			id := fleet.NodeID(fmt.Sprintf("n%02d", i))
			if seen[id] < 5 {
				t.Errorf("of 200 requests only %d went to %s: %v", seen[id], id, seen)
			}
			delete(seen, id)
		}
		if len(seen) > 0 {
			t.Errorf("some went to nodes that are worse: %v", seen)
		}
	}
}

func TestANodeToAvoidIsChosenOnlyWhenNoOtherFits(t *testing.T) {
	avoid := func(r *place.Request) { r.Avoid = "a" }
	m := model(node("a"), node("b", func(n *place.Node) { n.CPULoad = 1 }))
	if c := chosen(t, m, request(avoid)); c.Node != "b" {
		t.Errorf("chose %s", c.Node)
	}
	m.SetNode(node("b", func(n *place.Node) { n.Cordoned = true }), nil)
	if c := chosen(t, m, request(avoid)); c.Node != "a" {
		t.Errorf("chose %s", c.Node)
	}
	m.SetNode(node("a", func(n *place.Node) { n.Cordoned = true }), nil)
	if _, u := m.Place(request(avoid)); u == nil {
		t.Error("a cordoned node was chosen")
	}
}
