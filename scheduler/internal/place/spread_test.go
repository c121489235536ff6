package place_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

func inZone(zone string, more ...func(*place.Node)) func(*place.Node) {
	return func(n *place.Node) {
		n.Labels = map[string]string{"zone": zone}
		for _, change := range more {
			change(n)
		}
	}
}

func skew(most int) func(*place.Request) {
	return func(r *place.Request) { r.Plan.Where.Spread, r.Plan.Where.MaxSkew = "zone", most }
}

// hold charges count instances of the group to a node.
func hold(m *place.Model, n fleet.NodeID, count int) {
	for range count {
		m.Charge(place.HoldOf(n, "lobby", fleet.Resources{}, 0, nil))
	}
}

func TestInstancesAreSpreadOverALabel(t *testing.T) {
	m := model(node("a1", inZone("a")), node("a2", inZone("a")), node("b1", inZone("b")))
	hold(m, "a1", 1)
	c, u := m.Place(request(func(r *place.Request) { r.Plan.Where.Spread = "zone" }))
	if u != nil || c.Node != "b1" {
		t.Errorf("chose %+v, %+v", c, u)
	}
}

func TestWhatBindsAMaximumSkew(t *testing.T) {
	cases := []struct {
		rule string
		b    func(*place.Node) // the only node of zone b, where the group has no instance
		fits bool              // whether a third instance may go to zone a, which has two
	}{
		{rule: "a zone that is lost does not hold the others back", b: func(n *place.Node) { n.Live = false }, fits: true},
		{rule: "nor one that is cordoned", b: func(n *place.Node) { n.Cordoned = true }, fits: true},
		{rule: "nor one whose nodes are too small", b: func(n *place.Node) { n.Capacity.MemoryMiB = 99 }, fits: true},
		{rule: "nor one without the runtime", b: func(n *place.Node) { n.Runtimes = []fleet.NodeRuntime{} }, fits: true},
		{rule: "one whose nodes are full does", b: func(n *place.Node) { n.Room.MaxInstances = 1 }},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			m := model(node("a", inZone("a")), node("b", inZone("b", c.b)))
			hold(m, "a", 2)
			m.Charge(place.HoldOf("b", "other", fleet.Resources{}, 0, nil))
			_, u := m.Place(request(skew(2)))
			if (u == nil) != c.fits {
				t.Errorf("%+v", u)
			}
		})
	}
}

func TestARefusalForTheSkewNamesTheEmptiestValue(t *testing.T) {
	m := model(node("a", inZone("a")), node("b", inZone("b")), node("none"))
	hold(m, "a", 3)
	hold(m, "b", 1)
	m.Charge(place.HoldOf("b", "other", fleet.Resources{MemoryMiB: 950}, 0, nil))
	_, u := m.Place(request(skew(2)))
	want := "0 of 3 nodes can take it: 2 by spread (zone=a has 3 of the group's instances, zone=b only 1: make room there or raise spreadMaxSkew from 2); " +
		"1 by memory (b has 50 MiB free of 1000, 50 more are needed)"
	if u == nil || u.Message != want {
		t.Errorf("%+v", u)
	}
}

func TestWhereDataLiesIsStrongerThanTheSkew(t *testing.T) {
	m := model(node("a", inZone("a")), node("b", inZone("b")))
	hold(m, "a", 5)
	if c, u := m.Place(request(skew(1), func(r *place.Request) { r.Pinned = "a" })); u != nil || c.Node != "a" {
		t.Errorf("%+v, %+v", c, u)
	}
}

func TestNoValueEverHasMoreThanTheSkewAllows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := place.NewModel()
		zones := rapid.IntRange(1, 4).Draw(t, "zones")
		for i := range 2 * zones {
			m.SetNode(node(fleet.NodeID(fmt.Sprint("n", i)), inZone(fmt.Sprint(i%zones), func(n *place.Node) {
				n.Capacity.MemoryMiB = rapid.IntRange(100, 800).Draw(t, "memory")
			})), nil)
		}
		most := rapid.IntRange(1, 3).Draw(t, "skew")
		r, counts := request(skew(most), func(r *place.Request) { r.Plan.Ports.End = 1000 }), make([]int, zones)
		for range 60 {
			c, u := m.Place(r)
			if u != nil {
				break
			}
			var node int
			if _, err := fmt.Sscanf(string(c.Node), "n%d", &node); err != nil {
				t.Fatal(err)
			}
			counts[node%zones]++
			fewest := counts[0]
			for _, n := range counts {
				fewest = min(fewest, n)
			}
			if counts[node%zones]-fewest > most {
				t.Fatalf("%v although the maximum skew is %d", counts, most)
			}
		}
	})
}
