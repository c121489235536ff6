package place

import (
	"github.com/orreryhq/orrery/libs/fleet"
)

// Cordon excludes a node from new placements, as an operator's cordon would. Use it on a
// Clone only.
func (m *Model) Cordon(id fleet.NodeID) {
	m.change(id, func(n *Node) { n.Cordoned = true })
}

// Lose ends a node's session; what instances hold there stays held. Use it on a Clone only.
func (m *Model) Lose(id fleet.NodeID) {
	m.change(id, func(n *Node) { n.Live = false })
}

func (m *Model) change(id fleet.NodeID, edit func(*Node)) {
	if n, ok := m.nodes[id]; ok {
		edit(n)
		m.newFacts(n)
	}
}
