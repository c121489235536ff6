package place

import "github.com/orreryhq/orrery/libs/fleet"

// Prefer prefers some nodes. Schedulers that share the nodes each prefer others, so that
// two of them rarely choose the same node at the same moment. A preferred node only wins
// over nodes with the same score and as much free memory, so the weights decide as ever.
// With apart it wins over every node except for preferences and failures. Nil prefers no
// node. The answer of to about a node must not change until Prefer is called again.
func (m *Model) Prefer(to func(fleet.NodeID) bool, apart bool) {
	m.prefers, m.apart = to, apart
	for _, n := range m.nodes {
		if preferred, share := m.isPreferred(n.ID); preferred != n.preferred || share != n.share {
			n.preferred, n.share = preferred, share
			m.newFacts(n)
		}
	}
}

// isPreferred reports whether the model prefers a node, and what the node scores for it.
func (m *Model) isPreferred(id fleet.NodeID) (preferred bool, share int64) {
	if m.prefers == nil || !m.prefers(id) {
		return false, 0
	}
	if m.apart {
		return true, unit
	}
	return true, 0
}
