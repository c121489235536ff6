package place

import "github.com/orreryhq/orrery/libs/fleet"

// leaning is what a node scores more that the model leans to: it decides between
// nodes that suit nearly as well, and is less than what makes one suit better.
const leaning = unit / 8

// Lean has some nodes chosen before others that suit nearly as well. Schedulers that
// share the nodes and each lean to their own meet more rarely. Nil leans to none. What
// it says of a node must not change until Lean is called again.
func (m *Model) Lean(to func(fleet.NodeID) bool) {
	m.favours = to
	for _, n := range m.nodes {
		if favoured := to != nil && to(n.ID); favoured != n.favoured {
			n.favoured = favoured
			m.newFacts(n)
		}
	}
}
