package place

import "github.com/orreryhq/orrery/libs/fleet"

// Lean has some nodes chosen before others: they score more by a part of a unit, from
// 0 to 1. An eighth decides between nodes that suit nearly as well; a whole one
// outweighs all but preferences and failures. Schedulers that share the nodes and each
// lean to their own meet more rarely. Nil leans to none. What it says of a node must
// not change until Lean is called again.
func (m *Model) Lean(to func(fleet.NodeID) bool, by float64) {
	m.favours, m.leaning = to, int64(by*unit)
	for _, n := range m.nodes {
		if share := m.shareOf(n.ID); share != n.share {
			n.share = share
			m.newFacts(n)
		}
	}
}

// shareOf is what a node scores more.
func (m *Model) shareOf(id fleet.NodeID) int64 {
	if m.favours == nil || !m.favours(id) {
		return 0
	}
	return m.leaning
}
