package place

import "github.com/orreryhq/orrery/libs/fleet"

// Lean prefers some nodes. Schedulers that share the nodes each prefer others, so that
// two of them rarely choose the same node at the same moment. A preferred node only wins
// over nodes with the same score and as much free memory, so the weights decide as ever.
// With apart it wins over every node except for preferences and failures. Nil prefers no
// node. The answer of to about a node must not change until Lean is called again.
func (m *Model) Lean(to func(fleet.NodeID) bool, apart bool) {
	m.favours, m.apart = to, apart
	for _, n := range m.nodes {
		if favoured, share := m.leaning(n.ID); favoured != n.favoured || share != n.share {
			n.favoured, n.share = favoured, share
			m.newFacts(n)
		}
	}
}

// leaning reports whether the model prefers a node, and what the node scores for it.
func (m *Model) leaning(id fleet.NodeID) (favoured bool, share int64) {
	if m.favours == nil || !m.favours(id) {
		return false, 0
	}
	if m.apart {
		return true, unit
	}
	return true, 0
}
