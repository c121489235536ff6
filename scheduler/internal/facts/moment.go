package facts

import (
	"sort"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/budget"
	"github.com/orreryhq/orrery/scheduler/internal/pending"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// Moment is the fleet at one revision, with a model of its nodes. The caller owns the model
// and may change it.
type Moment struct {
	Snap  *view.Snapshot
	Model *place.Model
	At    time.Time
	// Nominated are the resources that are kept for instances, see facts.Nominated. The model is
	// charged with them. The map is shared and must not change.
	Nominated map[fleet.InstanceID]place.Hold
	// ledger is built on first use.
	ledger *budget.Ledger
}

func (m *Moment) books() *budget.Ledger {
	if m.ledger == nil {
		m.ledger = Ledger(m.Snap)
	}
	return m.ledger
}

// Explain returns how placement would answer a request for an instance. Like the
// controller, it checks quotas and reservations first and lets the instance use the
// resources nominated for it.
func (m *Moment) Explain(i *fleet.Instance, plan *fleet.Plan, keep int, here fleet.NodeID) place.Explanation {
	if h, ok := m.Nominated[i.Intent.ID]; ok {
		m.Model.Release(h)
		defer m.Model.Charge(h)
	}
	r := Request(i, plan, m.Snap)
	if r.Own != nil {
		m.Model.Release(*r.Own)
		defer m.Model.Charge(*r.Own)
	}
	e := m.Model.Explain(r, keep, here)
	if no := Refuse(m.books(), r); no != nil {
		e.Unfit = no
	} else if to := MoveTarget(m.Snap, i); to != "" && e.Unfit != nil {
		e.Unfit = MoveRefused(to, e.Unfit)
	}
	return e
}

// Cordon excludes a node from new placements, as an operator's cordon would.
func (m *Moment) Cordon(id fleet.NodeID) {
	m.Model.Cordon(id)
	m.close(id)
}

// Lose ends a node's session in the model.
func (m *Moment) Lose(id fleet.NodeID) {
	m.Model.Lose(id)
	m.close(id)
}

// close makes the ledger ignore a node's free resources.
func (m *Moment) close(id fleet.NodeID) {
	n, ok := m.Snap.Nodes.Get(id)
	if !ok {
		return
	}
	closed := Node(m.Snap, id, n)
	closed.Cordoned = true
	m.books().SetNode(id, Budget(&closed))
}

// Waiting returns the instances of all groups that need a placement, in the order in which
// they are placed.
func (m *Moment) Waiting() []*fleet.Instance {
	var all pending.Queue
	for _, i := range m.Snap.Instances.All() {
		if i.NeedsPlacement() {
			all = append(all, Waiting(i, Rank(m.Snap, i.Intent.Group)))
		}
	}
	sort.Sort(all)
	out := make([]*fleet.Instance, 0, len(all))
	for _, w := range all {
		i, _ := m.Snap.Instances.Get(w.ID)
		out = append(out, i)
	}
	return out
}

// Without removes what an instance holds from the model and the ledger. It returns false
// when the instance holds nothing.
func (m *Moment) Without(i *fleet.Instance) bool {
	h, holds := Hold(i)
	if holds {
		m.Model.Release(h)
		m.books().Release(h.Node, h.Group, h.Resources)
	}
	return holds
}

// Outcome is the answer to one request.
type Outcome struct {
	Choice place.Choice
	// Unfit says why it was not placed; nil when it was.
	Unfit *place.Unfit
}

// PlaceAll places requests in order and charges the model and the ledger. It stops when
// more returns false, and returns the outcomes so far. Requests with the same plan and
// pin share a refusal, as in the controller, because resources only shrink meanwhile.
func (m *Moment) PlaceAll(requests []*place.Request, more func() bool) []Outcome {
	type class struct {
		plan   *fleet.Plan
		pinned fleet.NodeID
		alone  fleet.InstanceID
	}
	unfit := map[class]*place.Unfit{}
	out := make([]Outcome, 0, len(requests))
	for _, r := range requests {
		if !more() {
			break
		}
		key := class{plan: r.Plan, pinned: r.Pinned}
		if _, ok := m.Nominated[r.ID]; ok || r.Waits != nil || r.Own != nil {
			key.alone = r.ID
		}
		if u, ok := unfit[key]; ok {
			out = append(out, Outcome{Unfit: u})
			continue
		}
		var choice place.Choice
		u := Refuse(m.books(), r)
		if u == nil {
			choice, u = Place(m.Model, r, m.Nominated)
		}
		if u != nil {
			unfit[key] = u
		} else {
			m.books().Charge(choice.Hold.Node, choice.Hold.Group, choice.Hold.Resources)
		}
		out = append(out, Outcome{Choice: choice, Unfit: u})
	}
	return out
}
