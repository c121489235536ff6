package controller

import (
	"context"
	"maps"
	"sort"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
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
	// kept are the resources that others free for waiting instances. The model is charged
	// with them. The map is shared and must not change.
	kept map[fleet.InstanceID]place.Hold
	// ledger is built on first use.
	ledger *budget.Ledger
}

// Refuse returns why a quota or a reservation forbids a request on any node, or nil.
// Placements count only after Charge.
func (m *Moment) Refuse(r *place.Request) *place.Unfit {
	return refusal(m.books(), r)
}

func (m *Moment) books() *budget.Ledger {
	if m.ledger == nil {
		m.ledger = ledgerOf(m.Snap)
	}
	return m.ledger
}

// Charge adds a placement to the ledger. The model must already be charged with it.
func (m *Moment) Charge(h place.Hold) {
	m.books().Charge(h.Node, h.Group, h.Resources)
}

// Kept returns the resources that the model holds for a waiting instance.
func (m *Moment) Kept(id fleet.InstanceID) (h place.Hold, ok bool) {
	h, ok = m.kept[id]
	return h, ok
}

// Explain returns how placement would answer a request for an instance. Like the
// controller, it checks quotas and reservations first and lets the instance use the
// resources kept for it.
func (m *Moment) Explain(i *fleet.Instance, plan *fleet.Plan, keep int, here fleet.NodeID) place.Explanation {
	if h, kept := m.kept[i.Intent.ID]; kept {
		m.Model.Release(h)
		defer m.Model.Charge(h)
	}
	r := m.Request(i, plan)
	e := m.Model.Explain(r, keep, here)
	if no := m.Refuse(r); no != nil {
		e.Unfit = no
	} else if to := movesTo(m.Snap, i); to != "" && e.Unfit != nil {
		e.Unfit = stuck(to, e.Unfit)
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
	facts := nodeOf(m.Snap, id, n)
	facts.Cordoned = true
	m.books().SetNode(id, budgetOf(&facts))
}

// Request returns the request that the controller would make for an instance.
func (m *Moment) Request(i *fleet.Instance, plan *fleet.Plan) *place.Request {
	return requestOf(i, plan, m.Snap)
}

// Waiting returns the instances of all groups that need a placement, in the order in which
// they are placed.
func (m *Moment) Waiting() []*fleet.Instance {
	var all pending.Queue
	for _, i := range m.Snap.Instances.All() {
		if i.NeedsPlacement() {
			all = append(all, waiterOf(i, m.Priority(i.Intent.Group)))
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

// Priority returns a group's priority. Instances of higher priority are placed first.
func (m *Moment) Priority(g fleet.GroupName) int { return priority(m.Snap, g) }

// imageEvery is the shortest time between two copies of the model. It keeps questions from
// slowing down placement.
const imageEvery = 20 * time.Millisecond

// asks are the callers that wait for a Moment.
type asks struct {
	mu      sync.Mutex
	waiting map[chan Moment]struct{}
	// last is the time of the last copy.
	last time.Time
}

func newAsks() *asks { return &asks{waiting: map[chan Moment]struct{}{}} }

// Ask returns a copy of the fleet and the model at the latest revision that Run has seen.
// It fails with Unavailable when Run has seen none or does not answer before ctx ends, and
// with Canceled when ctx was canceled.
func (c *Controller) Ask(ctx context.Context) (*Moment, error) {
	c.asks.mu.Lock()
	timer := time.NewTimer(time.Until(c.asks.last.Add(imageEvery)))
	c.asks.mu.Unlock()
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, unanswered(ctx)
	}
	answer := make(chan Moment, 1)
	c.asks.mu.Lock()
	c.asks.waiting[answer] = struct{}{}
	c.asks.mu.Unlock()
	c.Wake()
	select {
	case m := <-answer:
		m.Model = m.Model.Clone() // other callers got the same model
		return &m, nil
	case <-ctx.Done():
		c.asks.mu.Lock()
		delete(c.asks.waiting, answer)
		c.asks.mu.Unlock()
		return nil, unanswered(ctx)
	}
}

func unanswered(ctx context.Context) error {
	if errs.KindOf(ctx.Err()) == errs.Canceled {
		return errs.Wrap("controller.Ask", ctx.Err())
	}
	return errs.New(errs.Unavailable, "the scheduler has not caught up with the store: retry in a moment")
}

// answer sends a copy of the state to everyone who asked. Run's goroutine calls it when the
// state matches a snapshot.
func (c *Controller) answer(now time.Time) {
	c.asks.mu.Lock()
	defer c.asks.mu.Unlock()
	if c.state.snap == nil || len(c.asks.waiting) == 0 {
		return
	}
	c.asks.last = now
	m := Moment{Snap: c.state.snap, Model: c.state.model.Clone(), At: now, kept: maps.Clone(c.state.kept)}
	for id, e := range c.state.assumed { // the snapshot does not show them yet
		m.Model.Release(e.choice.Hold)
		if h, ok := roomFor(m.Snap, id); ok {
			m.Model.Charge(h)
			m.kept[id] = h
		}
	}
	for to := range c.asks.waiting {
		to <- m
	}
	clear(c.asks.waiting)
}

// Without removes what an instance holds from the model and the ledger. It returns false
// when the instance holds nothing.
func (m *Moment) Without(i *fleet.Instance) bool {
	h, holds := holdOf(i)
	if holds {
		m.Model.Release(h)
		m.books().Release(h.Node, h.Group, h.Resources)
	}
	return holds
}
