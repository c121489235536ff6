package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/scheduler/internal/facts"
	"github.com/orreryhq/orrery/scheduler/internal/pending"
	"github.com/orreryhq/orrery/scheduler/internal/place"
	"github.com/orreryhq/orrery/scheduler/internal/preempt"
)

const (
	// searchRest is the pause after a search for victims, as a multiple of the search's
	// duration.
	searchRest = 10
	// sinceWait limits the wait until the view shows the evictions. The revision may be
	// that of a key outside the view, which never shows it.
	sinceWait = time.Second
)

// evictionRequest is a transaction that requests evictions, and later its result.
type evictionRequest struct {
	txn store.Txn
	// forget lets the instances be considered again soon if the transaction did not happen.
	forget func()
	rev    int64
	err    error
}

// evictor requests evictions, one transaction at a time.
type evictor struct {
	answers chan *evictionRequest
	// next is the transaction to send; busy is true while one is in progress.
	next *evictionRequest
	busy bool
	// since is the revision that the view must reach before the next request. until limits
	// that wait.
	since int64
	until time.Time
	pace  preempt.Pace
	// rest is when the next search may start; more is true when an instance waits for a
	// search.
	rest time.Time
	more bool
	// again is the earliest time at which an instance may preempt again after its last
	// preemption; zero when none waits for that.
	again time.Time
}

func newEvictor() evictor { return evictor{answers: make(chan *evictionRequest, 1)} }

// mayRequestEvictions reports whether a new request for evictions may be prepared.
func (c *Controller) mayRequestEvictions(now time.Time) bool {
	e := &c.evictor
	return e.next == nil && !e.busy && (e.since <= c.state.snap.Rev || !now.Before(e.until))
}

// preempt requests the eviction of the cheapest instances of lower priority, for the first
// instance of an unfit class that may preempt.
func (c *Controller) preempt(class *pending.Class, plan *fleet.Plan, now time.Time) {
	g, ok := c.state.snap.Groups.Get(plan.Group)
	if !ok || !g.Spec.Preempts || g.Deleting || class.Verdict.Reason != fleet.ReasonNoNodeFits || !c.state.outranks(g.Spec.Priority) {
		return
	}
	if !c.mayRequestEvictions(now) || now.Before(c.evictor.rest) {
		c.evictor.more = true
		return
	}
	i := c.firstPreemptor(class, now)
	if i == nil {
		return
	}
	f, ok := c.own.Fence(i.Intent.Group)
	if !ok {
		return
	}
	r := &place.Request{ID: i.Intent.ID, Group: i.Intent.Group, Plan: plan, TemplateMiB: facts.TemplateMiB(c.state.snap, plan)}
	began := time.Now()
	victims, ok := c.state.victims(r, g.Spec.Priority, now)
	c.evictor.rest = c.now().Add(searchRest * time.Since(began))
	if !ok {
		c.state.victimsBound = true
		return
	}
	txn := c.evictions(i, g.Spec.Priority, victims, f, now)
	if txn.Size() >= c.store.MaxOps() {
		return
	}
	id := i.Intent.ID
	c.evictor.next, c.evictor.more = &evictionRequest{txn: txn, forget: func() { c.evictor.pace.Forget(id) }}, true
	c.evictor.pace.Made(id, now)
}

// firstPreemptor returns the first parked instance of a class that may preempt now.
func (c *Controller) firstPreemptor(class *pending.Class, now time.Time) *fleet.Instance {
	served := map[fleet.InstanceID]bool{}
	for _, e := range c.state.snap.Evictions.All() {
		served[e.For] = true
	}
	var first *pending.Instance
	for _, w := range class.Parked {
		switch ready := c.evictor.pace.Ready(w.ID); {
		case served[w.ID]:
		case now.Before(ready):
			c.evictor.again = sooner(c.evictor.again, ready)
		case first == nil || w.Before(first):
			first = w
		}
	}
	if first == nil {
		return nil
	}
	i, _ := c.state.snap.Instances.Get(first.ID)
	return i
}

// evictions builds a transaction that requests the eviction of the victims. It requires
// that the preempting instance, the victims and their last reports are unchanged.
func (c *Controller) evictions(i *fleet.Instance, priority int, v preempt.Victims, f store.Fence, now time.Time) store.Txn {
	t := store.Txn{Fences: []store.Fence{f}, Guards: []store.Guard{store.Unchanged(keys.Intent(i.Intent.ID), i.Intent.ModRev)}}
	for _, victim := range v.Instances {
		have, _ := c.state.snap.Instances.Get(victim.ID)
		t.Guards = append(append(t.Guards, unchanged(have)...), c.state.snap.FiguresUnchanged(v.Node, victim.ID))
		t.Writes = append(t.Writes, store.Create(keys.Eviction(victim.ID), fleet.Eviction{
			Instance: victim.ID, Generation: have.Intent.Generation, Node: v.Node, Reason: fleet.ReasonPreempted, For: i.Intent.ID, At: now.UTC(),
			Message: fmt.Sprintf("%s, of priority %d, gets its room on %s; its own priority is %d", i.Intent.Name, priority, v.Node, victim.Priority),
		}))
	}
	return t
}

// unchanged returns guards that an instance is as the decision saw it.
func unchanged(i *fleet.Instance) []store.Guard {
	var status int64
	if i.Status != nil {
		status = i.Status.ModRev
	}
	return []store.Guard{store.Unchanged(keys.Intent(i.Intent.ID), i.Intent.ModRev), store.Unchanged(keys.Status(i.Intent.ID), status)}
}

// sendEvictions sends the prepared request for evictions.
func (c *Controller) sendEvictions(ctx context.Context) {
	a := c.evictor.next
	if a == nil {
		return
	}
	c.evictor.next, c.evictor.busy = nil, true
	c.sending.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, commitTimeout)
		defer cancel()
		a.rev, a.err = c.store.Commit(ctx, a.txn)
		c.evictor.answers <- a
	})
}

// onEvictionResult processes the answer. The view shows the result in any case.
func (c *Controller) onEvictionResult(a *evictionRequest, now time.Time) {
	c.evictor.busy = false
	c.evictor.since, c.evictor.until = a.rev, now.Add(sinceWait)
	if a.err != nil {
		c.evictor.rest = now.Add(retryPause)
		if store.Lost(a.err) != nil { // it met a change and did not happen
			a.forget()
		}
		c.log.Debug("evictions were not asked for, looking again", "error", a.err)
		return
	}
	c.log.Debug("asked for evictions", "revision", a.rev, "instances", len(a.txn.Writes))
}

// resumeSearch makes the classes try again once a search may start.
func (c *Controller) resumeSearch(now time.Time) {
	if c.state.victimFreed {
		c.state.victimsBound, c.state.victimFreed = false, false
		c.evictor.more = true
	}
	if again := c.evictor.again; !again.IsZero() && !now.Before(again) {
		c.evictor.again, c.evictor.more = time.Time{}, true
	}
	if c.evictor.more && c.mayRequestEvictions(now) && !now.Before(c.evictor.rest) {
		c.evictor.more = false
		c.state.capacityVersion++
	}
}

// nextSearch returns when resumeSearch has something to do at the latest; zero when only an
// answer or nothing can cause it.
func (c *Controller) nextSearch() time.Time {
	switch e := &c.evictor; {
	case !e.more:
		return e.again
	case e.busy:
		return time.Time{}
	case e.since > c.state.snap.Rev:
		return e.until
	default:
		return e.rest
	}
}
