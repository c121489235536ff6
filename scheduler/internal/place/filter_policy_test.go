package place_test

import (
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
	"github.com/orreryhq/orrery/libs/fleet/policy"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

func TestTheReasonIsThePolicyWhereNoEndOfAnotherInstanceHelps(t *testing.T) {
	refusing := admits(policy.Policy{})
	offline := func(n *place.Node) { n.Live = false }
	full := func(n *place.Node) { n.Capacity.MemoryMiB = 1 }
	cases := map[string]struct {
		nodes []func(*place.Node)
		ask   func(*place.Request)
		want  fleet.Reason
	}{
		"every node refuses":                              {[]func(*place.Node){refusing, refusing}, nil, fleet.ReasonNodePolicy},
		"one refuses, the other is offline":               {[]func(*place.Node){refusing, offline}, nil, fleet.ReasonNodePolicy},
		"one refuses, the other is full":                  {[]func(*place.Node){refusing, full}, nil, fleet.ReasonNoNodeFits},
		"one refuses, and the group does not list others": {[]func(*place.Node){refusing, full}, func(r *place.Request) { r.Plan.Where.Nodes = []fleet.NodeID{"n0"} }, fleet.ReasonNodePolicy},
		"the node with its data refuses":                  {[]func(*place.Node){refusing, full}, func(r *place.Request) { r.Pinned = "n0" }, fleet.ReasonNodePolicy},
		"the node with its data is full, another refuses": {[]func(*place.Node){full, refusing}, func(r *place.Request) { r.Pinned = "n0" }, fleet.ReasonPinnedWaiting},
		"no node refuses":                                 {[]func(*place.Node){offline}, nil, fleet.ReasonNoNodeFits},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := request()
			as("games")(r)
			if c.ask != nil {
				c.ask(r)
			}
			m := place.NewModel()
			for i, change := range c.nodes {
				m.SetNode(node(fleet.NodeID([]string{"n0", "n1"}[i]), change), nil)
			}
			if _, u := m.Place(r); u == nil || u.Reason != c.want {
				t.Errorf("%+v, want %s", u, c.want)
			}
		})
	}
}

func TestANodeWithoutAPolicyAndAnImageOnlyTheNodeKnowsAreLeftToTheAgent(t *testing.T) {
	image := contained(isolation.Container{Image: "ghcr.io/%TEAM%/server"})
	for name, c := range map[string]struct {
		node func(*place.Node)
		ask  func(*place.Request)
	}{
		"an older agent":                {func(*place.Node) {}, as("root")},
		"an image with a placeholder":   {admits(policy.Policy{Images: []string{"debian"}}), image},
		"any image, with an empty list": {admits(policy.Policy{}), contained(isolation.Container{Image: "ghcr.io/team/server"})},
	} {
		t.Run(name, func(t *testing.T) {
			r := request()
			c.ask(r)
			if _, u := model(node("n", c.node)).Place(r); u != nil {
				t.Error(u.Message)
			}
		})
	}
}

func TestAPolicyThatChangesAdmitsWhatWaited(t *testing.T) {
	m, r := model(node("n", admits(policy.Policy{}))), request()
	as("games")(r)
	if _, u := m.Place(r); u == nil {
		t.Fatal("placed against the policy")
	}
	m.SetNode(node("n", admits(policy.Policy{Users: []string{"games"}})), nil)
	if _, u := m.Place(r); u != nil {
		t.Error(u.Message)
	}
}
