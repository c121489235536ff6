package place

import "github.com/orreryhq/orrery/libs/fleet"

// Cordon keeps everything new off a node, as an operator's cordon would. For
// copies: the view knows nothing of it.
func (m *Model) Cordon(id fleet.NodeID) {
	m.change(id, func(n *Node) { n.Cordoned = true })
}

// Lose takes a node's agent away, as the end of its session would; what is held
// there stays held. For copies: the view knows nothing of it.
func (m *Model) Lose(id fleet.NodeID) {
	m.change(id, func(n *Node) { n.Live = false })
}

func (m *Model) change(id fleet.NodeID, edit func(*Node)) {
	if n, ok := m.nodes[id]; ok {
		edit(n)
		m.newFacts(n)
	}
}

// Outcome is what became of one request.
type Outcome struct {
	Choice Choice
	// Unfit is why it was not placed; nil when it was.
	Unfit *Unfit
}

// PlaceAll places requests one after the other and charges the model, until more
// says no; it returns what became of those it came to. As in the real thing,
// requests of one plan share a verdict, because room only shrinks meanwhile.
func (m *Model) PlaceAll(requests []*Request, more func() bool) []Outcome {
	type class struct {
		plan   *fleet.Plan
		pinned fleet.NodeID
	}
	unfit := map[class]*Unfit{}
	out := make([]Outcome, 0, len(requests))
	for _, r := range requests {
		if !more() {
			break
		}
		key := class{r.Plan, r.Pinned}
		if u, ok := unfit[key]; ok {
			out = append(out, Outcome{Unfit: u})
			continue
		}
		choice, u := m.Place(r)
		if u != nil {
			unfit[key] = u
		}
		out = append(out, Outcome{Choice: choice, Unfit: u})
	}
	return out
}
