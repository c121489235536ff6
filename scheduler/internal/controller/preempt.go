package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/scheduler/internal/place"
	"github.com/orreryhq/orrery/scheduler/internal/preempt"
)

const (
	// searchRest is how many times as long as a search for victims nothing is searched for after it.
	searchRest = 10
	// sinceWait bounds the wait until the view shows what was asked for: the revision
	// may be that of a key outside the view.
	sinceWait = time.Second
)

// asking is a transaction that asks for evictions, and then what came of it.
type asking struct {
	txn store.Txn
	// forget has those concerned looked at again soon, when nothing came of it.
	forget func()
	rev    int64
	err    error
}

// evictor asks for evictions, one transaction at a time.
type evictor struct {
	answers chan *asking
	// next is to be sent; busy is true while one is under way.
	next *asking
	busy bool
	// since is the revision that the view has to reach before anything more is asked
	// for, or until when that is waited for.
	since int64
	until time.Time
	pace  preempt.Pace
	// rest is until when nothing is searched for; more is true when somebody waits for a search.
	rest time.Time
	more bool
	// again is when the earliest of those for whom room was made lately may be served
	// again; zero when nobody waits for that.
	again time.Time
}

func newEvictor() evictor { return evictor{answers: make(chan *asking, 1)} }

// mayAsk reports whether evictions may be decided about now.
func (c *Controller) mayAsk(now time.Time) bool {
	e := &c.evictor
	return e.next == nil && !e.busy && (e.since <= c.state.snap.Rev || !now.Before(e.until))
}

// makeRoom has the cheapest instances of lower priority make room for the first of a
// class that fits nowhere and for which that was not done already.
func (c *Controller) makeRoom(class *class, plan *fleet.Plan, now time.Time) {
	g, ok := c.state.snap.Groups.Get(plan.Group)
	if !ok || !g.Spec.Preempts || g.Deleting || class.verdict.Reason != fleet.ReasonNoNodeFits || !c.state.outranks(g.Spec.Priority) {
		return
	}
	if !c.mayAsk(now) || now.Before(c.evictor.rest) {
		c.evictor.more = true
		return
	}
	i := c.neediest(class, now)
	if i == nil {
		return
	}
	f, ok := c.own.Fence(i.Intent.Group)
	if !ok {
		return
	}
	r := &place.Request{ID: i.Intent.ID, Group: i.Intent.Group, Plan: plan, TemplateMiB: templateMiB(c.state.snap, plan)}
	began := time.Now()
	victims, ok := c.state.victims(r, g.Spec.Priority, now)
	c.evictor.rest = c.now().Add(searchRest * time.Since(began))
	if !ok {
		c.state.hungry = true
		return
	}
	txn := c.evictions(i, g.Spec.Priority, victims, f, now)
	if txn.Size() >= c.store.MaxOps() {
		return
	}
	id := i.Intent.ID
	c.evictor.next, c.evictor.more = &asking{txn: txn, forget: func() { c.evictor.pace.Forget(id) }}, true
	c.evictor.pace.Made(id, now)
}

// neediest is the first of a class' instances for which room may be made now.
func (c *Controller) neediest(class *class, now time.Time) *fleet.Instance {
	served := map[fleet.InstanceID]bool{}
	for _, e := range c.state.snap.Evictions.All() {
		served[e.For] = true
	}
	var first *waiter
	for _, w := range class.parked {
		switch ready := c.evictor.pace.Ready(w.id); {
		case served[w.id]:
		case now.Before(ready):
			c.evictor.again = sooner(c.evictor.again, ready)
		case first == nil || w.before(first):
			first = w
		}
	}
	if first == nil {
		return nil
	}
	i, _ := c.state.snap.Instances.Get(first.id)
	return i
}

// evictions asks that victims make room, on the condition that all is as it was
// judged: who gets the room, each of them, and what was last reported of them.
func (c *Controller) evictions(i *fleet.Instance, priority int, v preempt.Victims, f store.Fence, now time.Time) store.Txn {
	t := store.Txn{Fences: []store.Fence{f}, Guards: []store.Guard{store.Unchanged(store.IntentKey(i.Intent.ID), i.Intent.ModRev)}}
	for _, victim := range v.Instances {
		have, _ := c.state.snap.Instances.Get(victim.ID)
		t.Guards = append(append(t.Guards, unchanged(have)...), c.state.snap.FiguresUnchanged(v.Node, victim.ID))
		t.Writes = append(t.Writes, store.Create(store.EvictionKey(victim.ID), fleet.Eviction{
			Instance: victim.ID, Generation: have.Intent.Generation, Node: v.Node, Reason: fleet.ReasonPreempted, For: i.Intent.ID, At: now.UTC(),
			Message: fmt.Sprintf("%s, of priority %d, gets its room on %s; its own priority is %d", i.Intent.Name, priority, v.Node, victim.Priority),
		}))
	}
	return t
}

// unchanged demands that an instance is as it was judged.
func unchanged(i *fleet.Instance) []store.Guard {
	var status int64
	if i.Status != nil {
		status = i.Status.ModRev
	}
	return []store.Guard{store.Unchanged(store.IntentKey(i.Intent.ID), i.Intent.ModRev), store.Unchanged(store.StatusKey(i.Intent.ID), status)}
}

// ask sends what is to be asked for.
func (c *Controller) ask(ctx context.Context) {
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

// heard takes in what came of it. Whatever it was, the view shows it.
func (c *Controller) heard(a *asking, now time.Time) {
	c.evictor.busy = false
	c.evictor.since, c.evictor.until = a.rev, now.Add(sinceWait)
	if a.err != nil {
		c.evictor.rest = now.Add(retry)
		if store.Lost(a.err) != nil { // it met a change, and has not happened
			a.forget()
		}
		c.log.Debug("evictions were not asked for, looking again", "error", a.err)
		return
	}
	c.log.Debug("asked for evictions", "revision", a.rev, "instances", len(a.txn.Writes))
}

// resume looks again at who waits for a search, once there may be one.
func (c *Controller) resume(now time.Time) {
	if c.state.left {
		c.state.hungry, c.state.left = false, false
		c.evictor.more = true
	}
	if again := c.evictor.again; !again.IsZero() && !now.Before(again) {
		c.evictor.again, c.evictor.more = time.Time{}, true
	}
	if c.evictor.more && c.mayAsk(now) && !now.Before(c.evictor.rest) {
		c.evictor.more = false
		c.state.room++
	}
}

// resumes is when somebody who waits for a search is looked at again at the latest;
// zero when an answer, or nothing, is waited for.
func (c *Controller) resumes() time.Time {
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
