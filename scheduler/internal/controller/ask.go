package controller

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/scheduler/internal/facts"
)

// imageEvery is the shortest time between two copies of the model. It keeps questions from
// slowing down placement.
const imageEvery = 20 * time.Millisecond

// asks are the callers that wait for a Moment.
type asks struct {
	mu      sync.Mutex
	waiting map[chan facts.Moment]struct{}
	// last is the time of the last copy.
	last time.Time
}

func newAsks() *asks { return &asks{waiting: map[chan facts.Moment]struct{}{}} }

// Ask returns a copy of the fleet and the model at the latest revision that Run has seen.
// It fails with Unavailable when Run has seen none or does not answer before ctx ends, and
// with Canceled when ctx was canceled.
func (c *Controller) Ask(ctx context.Context) (*facts.Moment, error) {
	c.asks.mu.Lock()
	timer := time.NewTimer(time.Until(c.asks.last.Add(imageEvery)))
	c.asks.mu.Unlock()
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, unanswered(ctx)
	}
	answer := make(chan facts.Moment, 1)
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
	m := facts.Moment{Snap: c.state.snap, Model: c.state.model.Clone(), At: now, Nominated: maps.Clone(c.state.nominated)}
	for id, e := range c.state.assumed { // the snapshot does not show them yet
		m.Model.Release(e.choice.Hold)
		if h, ok := facts.Nominated(m.Snap, id); ok {
			m.Model.Charge(h)
			m.Nominated[id] = h
		}
	}
	for to := range c.asks.waiting {
		to <- m
	}
	clear(c.asks.waiting)
}
