package place

import (
	"github.com/orreryhq/orrery/libs/fleet"
)

// Prefer makes the model prefer the nodes for which to returns true. Schedulers that share
// the nodes prefer different ones, so that they rarely choose the same node at the same
// moment. A preferred node wins only over nodes with the same score and as much free
// memory. A nil to prefers no node. The result of to must not change until the next call of
// Prefer.
func (m *Model) Prefer(to func(fleet.NodeID) bool) {
	m.prefers = to
	for _, n := range m.nodes {
		if preferred := m.isPreferred(n.ID); preferred != n.preferred {
			n.preferred = preferred
			m.newFacts(n)
		}
	}
}

func (m *Model) isPreferred(id fleet.NodeID) bool { return m.prefers != nil && m.prefers(id) }
