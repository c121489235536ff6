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
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// Moment is the fleet at one revision with a model of its nodes that belongs to
// whoever asked for it.
type Moment struct {
	Snap  *view.Snapshot
	Model *place.Model
	At    time.Time
	// kept is room that is being made for instances that wait; the model is charged with
	// it. It is shared with others.
	kept map[fleet.InstanceID]place.Hold
	// ledger is made when it is first asked for.
	ledger *budget.Ledger
}

// Refuse is why a quota or a reservation keeps a request from being placed anywhere;
// nil when none does. What was placed counts once it was charged.
func (m *Moment) Refuse(r *place.Request) *place.Unfit {
	return refusal(m.books(), r)
}

func (m *Moment) books() *budget.Ledger {
	if m.ledger == nil {
		m.ledger = ledgerOf(m.Snap)
	}
	return m.ledger
}

// Charge books what was placed on the model.
func (m *Moment) Charge(h place.Hold) {
	m.books().Charge(h.Node, h.Group, h.Resources)
}

// Kept is the room that is being made for an instance, with which the model is charged.
func (m *Moment) Kept(id fleet.InstanceID) (h place.Hold, ok bool) {
	h, ok = m.kept[id]
	return h, ok
}

// Explain is all that would be said of a request for an instance: as by whoever
// decides, quotas and reservations are asked first, and room that is being made for it is its own.
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

// Cordon keeps everything new off a node, as an operator's cordon would.
func (m *Moment) Cordon(id fleet.NodeID) {
	m.Model.Cordon(id)
	m.close(id)
}

// Lose takes a node's agent away, as the end of its session would.
func (m *Moment) Lose(id fleet.NodeID) {
	m.Model.Lose(id)
	m.close(id)
}

// close has a node's free room count for nothing in reservations.
func (m *Moment) close(id fleet.NodeID) {
	n, ok := m.Snap.Nodes.Get(id)
	if !ok {
		return
	}
	facts := nodeOf(m.Snap, id, n)
	facts.Cordoned = true
	m.books().SetNode(id, budgetOf(&facts))
}

// Request is what would be asked of the nodes for an instance.
func (m *Moment) Request(i *fleet.Instance, plan *fleet.Plan) *place.Request {
	return requestOf(i, plan, m.Snap)
}

// Waiting are all instances that need a placement, of all groups, in the order in
// which they are placed.
func (m *Moment) Waiting() []*fleet.Instance {
	var all queue
	for _, i := range m.Snap.Instances.All() {
		if i.NeedsPlacement() {
			all = append(all, waiterOf(i, m.Priority(i.Intent.Group)))
		}
	}
	sort.Sort(all)
	out := make([]*fleet.Instance, 0, len(all))
	for _, w := range all {
		i, _ := m.Snap.Instances.Get(w.id)
		out = append(out, i)
	}
	return out
}

// Priority is a group's: the higher, the earlier its instances are placed.
func (m *Moment) Priority(g fleet.GroupName) int { return priority(m.Snap, g) }

// imageEvery is the shortest time between two copies of the model, so that
// questions take a small share of the goroutine that places.
const imageEvery = 20 * time.Millisecond

// asks are those who wait for a Moment.
type asks struct {
	mu      sync.Mutex
	waiting map[chan Moment]struct{}
	// last is when the model was copied last.
	last time.Time
}

func newAsks() *asks { return &asks{waiting: map[chan Moment]struct{}{}} }

// Ask returns the fleet and the model as Run has them, at the latest revision it
// has seen. Unavailable when it has seen none, or does not answer before ctx ends;
// Canceled when ctx was cancelled.
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
		m.Model = m.Model.Clone() // others have got the same
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

// answer gives everybody who asked a copy of the state. It is called by Run's
// goroutine when the state is abreast of a snapshot.
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

// Without takes what an instance holds off the model; false when it holds nothing.
func (m *Moment) Without(i *fleet.Instance) bool {
	h, holds := holdOf(i)
	if holds {
		m.Model.Release(h)
		m.books().Release(h.Node, h.Group, h.Resources)
	}
	return holds
}
