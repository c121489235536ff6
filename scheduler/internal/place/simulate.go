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

// Outcome is the answer to one request.
type Outcome struct {
	Choice Choice
	// Unfit says why it was not placed; nil when it was.
	Unfit *Unfit
}

// Bounds are limits on placements beyond the nodes' capacity, such as quotas.
type Bounds interface {
	// Refuse returns why a request may not be placed anywhere now; nil when it may.
	Refuse(r *Request) *Unfit
	// Charge records a placement.
	Charge(h Hold)
	// Kept returns the resources that the model already holds for an instance, if any.
	Kept(id fleet.InstanceID) (h Hold, ok bool)
}

// PlaceAll places requests in order and charges the model and the bounds. It stops when
// more returns false, and returns the outcomes so far. Requests with the same plan and pin
// share a refusal, as in the controller, because resources only shrink meanwhile.
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

// placeIn places a request, which may use the resources that are kept for it.
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
