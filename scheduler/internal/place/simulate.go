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

// Bounds limit what may be placed beside what nodes have, such as quotas.
type Bounds interface {
	// Refuse is why a request may be placed nowhere now; nil when it may.
	Refuse(r *Request) *Unfit
	// Charge books what was placed.
	Charge(h Hold)
	// Kept is room that the model is charged with for an instance alone, if there is any.
	Kept(id fleet.InstanceID) (h Hold, ok bool)
}

// PlaceAll places requests one after the other and charges the model and the bounds,
// until more says no; it returns what became of those it came to. As in the real thing,
// requests of one plan share a verdict, because room only shrinks meanwhile.
func (m *Model) PlaceAll(requests []*Request, bounds Bounds, more func() bool) []Outcome {
	type class struct {
		plan   *fleet.Plan
		pinned fleet.NodeID
		alone  fleet.InstanceID
	}
	unfit := map[class]*Unfit{}
	out := make([]Outcome, 0, len(requests))
	for _, r := range requests {
		if !more() {
			break
		}
		key := class{plan: r.Plan, pinned: r.Pinned}
		if _, kept := bounds.Kept(r.ID); kept || r.Waits != nil {
			key.alone = r.ID
		}
		if u, ok := unfit[key]; ok {
			out = append(out, Outcome{Unfit: u})
			continue
		}
		var choice Choice
		u := bounds.Refuse(r)
		if u == nil {
			choice, u = m.placeIn(r, bounds)
		}
		if u != nil {
			unfit[key] = u
		} else {
			bounds.Charge(choice.Hold)
		}
		out = append(out, Outcome{Choice: choice, Unfit: u})
	}
	return out
}

// placeIn places a request, which may use the room that is kept for it.
func (m *Model) placeIn(r *Request, bounds Bounds) (Choice, *Unfit) {
	h, kept := bounds.Kept(r.ID)
	if kept {
		m.Release(h)
	}
	choice, unfit := m.Place(r)
	if kept && unfit != nil {
		m.Charge(h)
	}
	return choice, unfit
}
