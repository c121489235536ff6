package place

import (
	"github.com/orreryhq/orrery/libs/fleet"
)

// Prefer makes the model prefer the nodes for which to returns true. Schedulers that share
// the nodes prefer different ones, so that they rarely choose the same node at the same
// moment. A preferred node wins only over nodes with the same score and as much free
// memory. With onlyOwn it wins over every other node, unless the group has preferences or
// failed there. A nil to prefers no node. The result of to must not change until the next
// call of Prefer.
func (m *Model) Prefer(to func(fleet.NodeID) bool, onlyOwn bool) {
	m.prefers, m.onlyOwn = to, onlyOwn
	for _, n := range m.nodes {
		if preferred, share := m.isPreferred(n.ID); preferred != n.preferred || share != n.share {
			n.preferred, n.share = preferred, share
			m.newFacts(n)
		}
	}
}

// isPreferred reports whether the model prefers a node, and the score the node gets for it.
func (m *Model) isPreferred(id fleet.NodeID) (preferred bool, share int64) {
	if m.prefers == nil || !m.prefers(id) {
		return false, 0
	}
	if m.onlyOwn {
		return true, unit
	}
	return true, 0
}
