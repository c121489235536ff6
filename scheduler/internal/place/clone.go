package place

import (
	"maps"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Clone returns an independent copy of the model, for questions that must not disturb the
// original. The copy has no classes; it builds its rankings when it is asked.
func (m *Model) Clone() *Model {
	out := &Model{
		nodes: make(map[fleet.NodeID]*Node, len(m.nodes)), classes: map[classKey]*class{},
		joined: make([]*Node, len(m.joined)), slots: make([]*Node, len(m.slots)),
		failing: make([]*Node, len(m.failing)), expired: m.expired, unused: slices.Clone(m.unused), prefers: m.prefers, onlyOwn: m.onlyOwn, maxCPU: m.maxCPU,
	}
	nodes := make([]Node, len(m.slots))
	for i, n := range m.slots {
		nodes[i] = n.clone()
		out.slots[i] = &nodes[i]
		if m.nodes[n.ID] == n {
			out.nodes[n.ID] = &nodes[i]
		}
	}
	for i, n := range m.joined {
		out.joined[i] = out.slots[n.slot]
	}
	for i, n := range m.failing {
		out.failing[i] = out.slots[n.slot]
	}
	return out
}

// clone copies the fields that Charge, Release and SetNode change in place. The other
// reference fields are only ever replaced as a whole, so both nodes may share them.
func (n *Node) clone() Node {
	out := *n
	out.groups = maps.Clone(n.groups)
	out.ports.held = slices.Clone(n.ports.held)
	return out
}
