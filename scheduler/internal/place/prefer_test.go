package place_test

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

func TestAModelPrefersItsOwnNodes(t *testing.T) {
	loaded := func(load float64) func(*place.Node) { return func(n *place.Node) { n.CPULoad = load } }
	sized := func(mib int) func(*place.Node) { return func(n *place.Node) { n.Capacity.MemoryMiB = mib } }
	preferring := func(r *place.Request) {
		r.Plan.Where.Prefer = []fleet.Preference{{Label: "zone=west", Weight: 1}}
	}
	for _, c := range []struct {
		name    string
		prefers fleet.NodeID
		onlyOwn bool
		nodes   []place.Node
		ask     func(*place.Request)
		want    fleet.NodeID
	}{
		{"of equal nodes it chooses its own", "a", false, []place.Node{node("a"), node("b")}, nil, "a"},
		{"whichever that is", "b", false, []place.Node{node("a"), node("b")}, nil, "b"},
		{"a node that is a little better wins over its own", "b", false, []place.Node{node("a"), node("b", loaded(0.001))}, nil, "a"},
		{"a node with more free memory wins over its own", "b", false, []place.Node{node("a", sized(1000)), node("b", sized(900))}, nil, "a"},
		{"it keeps to its own", "b", true, []place.Node{node("a"), node("b", loaded(0.9))}, nil, "b"},
		{"what a group prefers comes first", "a", true, []place.Node{node("a", inZone("east")), node("b", inZone("west"))}, preferring, "b"},
		{"it does not choose a cordoned node", "a", true, []place.Node{node("a", func(n *place.Node) { n.Cordoned = true }), node("b")}, nil, "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := place.NewModel()
			m.SetNode(c.nodes[0], nil)
			m.Prefer(func(n fleet.NodeID) bool { return n == c.prefers }, c.onlyOwn)
			m.SetNode(c.nodes[1], nil) // it also applies to nodes that join later
			var asked []func(*place.Request)
			if c.ask != nil {
				asked = append(asked, c.ask)
			}
			if got := chosen(t, m.Clone(), request(asked...)); got.Node != c.want {
				t.Errorf("it chose %s, scored %v", got.Node, got.Score.Parts())
			}
		})
	}
}

func TestAModelThatPrefersNothingAnyMoreIsAsOneThatNeverDid(t *testing.T) {
	m, never := model(node("a"), node("b")), model(node("a"), node("b"))
	m.Prefer(func(n fleet.NodeID) bool { return n == "a" }, true)
	if c := chosen(t, m, request()); c.Score.Parts()["share"] == 0 {
		t.Errorf("the score does not say why: %v", c.Score.Parts())
	}
	m.Prefer(nil, true)
	if got, want := chosen(t, m, request()), chosen(t, never, request()); got.Node != want.Node || got.Score != want.Score {
		t.Errorf("it chose %s, scored %v, the other %s", got.Node, got.Score.Parts(), want.Node)
	}
}

func TestANodeThatKeepsFailingIsAvoidedHoweverMuchTheModelPrefersIt(t *testing.T) {
	m := model(node("a"), node("b"))
	m.Prefer(func(n fleet.NodeID) bool { return n == "a" }, true)
	r := request()
	for range 5 {
		m.Failed("a", r.Group, r.Plan.GroupRevision, time.Unix(1_000_000, 0))
	}
	if got := chosen(t, m, r); got.Node != "b" {
		t.Errorf("it chose %s, scored %v", got.Node, got.Score.Parts())
	}
}
