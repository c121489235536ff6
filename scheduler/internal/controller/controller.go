package controller

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

const (
	// resync is the safety net: everything that waits is looked at again.
	resync = 30 * time.Second
	// retry is the pause after a transaction whose outcome is unknown.
	retry = 250 * time.Millisecond
	// planSlice is how many decisions are made before answers are looked at again.
	planSlice = 256
)

// Controller places instances. Make it with New before the view runs, then Run it.
type Controller struct {
	store   *store.Client
	owned   func() *store.Ownership
	inbox   *inbox
	asks    *asks
	log     *slog.Logger
	metrics *Metrics
	now     func() time.Time
	// answers are what became of the transactions under way; sending are their goroutines.
	answers chan *flight
	sending sync.WaitGroup

	// Owned by Run's goroutine.
	state *state
	own   *store.Ownership
	// resynced is when everything that waits was last looked at again without a cause.
	resynced time.Time
	pipe
	evictor  evictor
	balancer balancer
}

// Config is what a controller needs. All but Metrics, MaxCPU and Now are required.
type Config struct {
	Store *store.Client
	// View is subscribed to by New, so New comes before the view's Run.
	View *view.View
	// Owned is what the replica owns.
	Owned   func() *store.Ownership
	Metrics *Metrics
	Log     *slog.Logger
	// MaxCPU is the measured use of processors, 0 to 1, above which a node takes nothing
	// new; see place.Model.SetMaxCPU. 0 excludes no node.
	MaxCPU float64
	// Now reads the wall clock, with a monotonic reading. Nil means time.Now.
	Now func() time.Time
}

// New makes a controller that listens to a view.
func New(cfg Config) *Controller {
	ctl := &Controller{
		store: cfg.Store, owned: cfg.Owned, inbox: newInbox(), asks: newAsks(), log: cfg.Log, metrics: cfg.Metrics, now: cfg.Now, state: newState(cfg.MaxCPU),
		answers: make(chan *flight, depthLimit+1), pipe: newPipe(cfg.Store), evictor: newEvictor(),
	}
	if ctl.now == nil {
		ctl.now = time.Now
	}
	cfg.View.Subscribe(ctl.inbox.hear)
	return ctl
}

// Wake makes Run look again, after ownership has changed.
func (c *Controller) Wake() {
	select {
	case c.inbox.wake <- struct{}{}:
	default:
	}
}

// Run places instances until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	defer c.sending.Wait()
	timer := time.NewTimer(resync)
	defer timer.Stop()
	for {
		next := c.pass(ctx, c.now())
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.inbox.wake:
		case f := <-c.answers:
			c.land(f, c.now())
		case a := <-c.evictor.answers:
			c.heard(a, c.now())
		case <-timer.C:
		}
	}
}

// pass decides what can be decided now, sends what can be sent, and returns when to
// look again at the latest. It never waits for etcd.
func (c *Controller) pass(ctx context.Context, now time.Time) time.Duration {
	for ctx.Err() == nil {
		c.catchUp(now)
		c.answer(now)
		own := c.owned()
		if c.state.snap == nil || own == nil {
			return resync // the next batch or the next ownership wakes us
		}
		if own != c.own {
			c.own = own
			c.state.takeUp(own)
			c.state.preferOwn(own, false)
		}
		if wait := c.pausedUntil.Sub(now); wait > 0 {
			return wait
		}
		c.settle(ctx)
		if c.state.snap.Rev < c.own.Epoch() {
			return resync
		}
		c.look(now)
		planned := c.plan(now)
		sent := c.send(ctx, now)
		c.rebalance(now)
		c.ask(ctx)
		if !planned && !sent {
			break
		}
	}
	return c.next(now)
}

// catchUp takes in what came of the transactions under way, and what the view shows.
func (c *Controller) catchUp(now time.Time) {
	for {
		select {
		case f := <-c.answers:
			c.land(f, now)
			continue
		default:
		}
		break
	}
	if c.state.catchUp(c.inbox, now) {
		c.rewind()
	}
	c.compare()
}

// look readies what may be decided now though it was not before.
func (c *Controller) look(now time.Time) {
	c.state.releaseBlocked(now)
	c.readmit(now)
	c.endApart(now)
	c.resume(now)
	if now.Sub(c.resynced) >= resync {
		c.resynced = now
		c.state.room++
	}
	c.state.reopen()
	c.refresh(now)
}

// next is when to look again at the latest.
func (c *Controller) next(now time.Time) time.Duration {
	next := resync
	at := func(t time.Time) {
		if !t.IsZero() {
			next = max(min(next, t.Sub(now)), time.Millisecond)
		}
	}
	at(c.state.unblock)
	at(c.state.refresh)
	at(c.resumes())
	at(c.resynced.Add(resync))
	if c.state.preferred.apart {
		at(c.apartUntil)
	}
	if len(c.state.balanced) > 0 {
		at(c.balancer.due)
	}
	for _, l := range c.losers {
		at(l.at)
	}
	return next
}

// plan decides about some of the waiting instances, until there is enough to send.
// False when there was nothing to decide. Unfit instances of one class share their
// verdict, because room only shrinks until something is released.
func (c *Controller) plan(now time.Time) (planned bool) {
	for n := 0; n < planSlice && !c.enough(c.state.queued); n++ {
		w := c.state.ready.next()
		if w == nil {
			break
		}
		c.decide(w, now)
		planned = true
	}
	return planned
}

// decide looks for a place for one instance.
func (c *Controller) decide(w *waiter, now time.Time) {
	f, ok := c.own.Fence(w.group)
	if !ok {
		c.state.passOn(w)
		c.state.setAside(w)
		return
	}
	i, ok := c.state.snap.Instances.Get(w.id)
	if !ok {
		c.state.drop(w.id)
		return
	}
	if w.noting { // its note's answer readies it: a placement removes the note
		return
	}
	key := classKey{plan: i.Intent.Plan}
	stored, ok := c.state.snap.Plans.Get(i.Intent.Plan)
	if !ok {
		c.refuse(c.class(key, w), w, PlanMissing(), now)
		return
	}
	r := requestOf(i, &stored.Plan, c.state.snap)
	if w.races > 0 { // whoever won the best node is likely to have won the next best too
		r.Shuffle = uint64(w.ordinal)<<8 + uint64(w.races)
	}
	to := movesTo(c.state.snap, i)
	key.pinned = r.Pinned
	if _, kept := c.state.kept[w.id]; kept || r.Waits != nil {
		key.alone = w.id
	}
	class := c.class(key, w)
	if class.verdict != nil && class.room == c.state.room {
		c.refuse(class, w, class.verdict, now)
		return
	}
	if no := refusal(c.state.ledger, r); no != nil {
		c.refuse(class, w, no, now)
		return
	}
	choice, unfit := c.state.place(r)
	switch {
	case r.Waits != nil:
		c.refuse(class, w, unfit, now)
		return
	case unfit != nil && to != "":
		c.refuse(class, w, stuck(to, unfit), now)
		return
	case unfit != nil:
		c.refuse(class, w, unfit, now)
		c.makeRoom(class, r.Plan, now)
		return
	}
	class.verdict = nil
	c.enqueue(c.state.assume(&entry{w: w, noted: w.noted, unsure: w.unsure, instance: i, plan: &stored.Plan, choice: choice, dataUUID: dataUUID(c.state.snap, &stored.Plan, choice.Node), fence: f, at: now, seen: c.state.snap.Rev}))
	if next := class.next(); next != nil { // there was room for one: is there for another?
		c.state.ready.add(next)
	}
}

// class is that of a waiter, made when it is the first of its kind. Where it was of
// another one, those that are left there are looked at, too.
func (c *Controller) class(k classKey, w *waiter) *class {
	cl := c.state.classes[k]
	if cl == nil {
		cl = &class{key: k}
		c.state.classes[k] = cl
	}
	if w.from != cl {
		c.state.passOn(w)
	}
	w.from = nil
	return cl
}

// refuse has an instance wait until there may be room. A verdict that is another
// than before is told to all who share it.
func (c *Controller) refuse(class *class, w *waiter, u *place.Unfit, now time.Time) {
	if u != class.verdict {
		class.seen = c.state.snap.Rev
		c.state.missing(w.group, u)
	}
	class.verdict, class.room = u, c.state.room
	class.park(w)
	c.tellLater(class, c.note(w, now))
	c.tell(class, class.tellAll(u, c.state.pause(), now))
}

// later is the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// sooner is the earlier of two times; zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// PlanMissing is the verdict on an instance whose plan is not in the store.
func PlanMissing() *place.Unfit {
	return &place.Unfit{Reason: fleet.ReasonPlanMissing, Message: "its plan is not in the store yet"}
}

// requestOf is what is asked of the nodes. A static instance is bound to the node that
// has its data, unless its group lets it leave a lost one, and waits while that node is
// deleted. One that was made for another node is bound to that.
func requestOf(i *fleet.Instance, plan *fleet.Plan, snap *view.Snapshot) *place.Request {
	r := &place.Request{ID: i.Intent.ID, Group: i.Intent.Group, Plan: plan, TemplateMiB: templateMiB(snap, plan)}
	if old := i.Placement; old != nil {
		r.PreferredNode, r.PreferredPort = old.Node, old.Port
		record, known := snap.Nodes.Get(old.Node)
		switch {
		case !plan.Static, known && i.MayLeave(record.ModRev):
		case known && old.On(record):
			r.Pinned = old.Node
		case !plan.Exclusive() && i.Intent.DiscardsData != old.Generation:
			r.Waits = dataLost(i)
		}
	}
	if to := movesTo(snap, i); to != "" {
		r.Pinned = to
	}
	return r
}

// dataLost is the verdict on a static instance whose data was on a node that was deleted.
func dataLost(i *fleet.Instance) *place.Unfit {
	return &place.Unfit{Reason: fleet.ReasonDataLost, Message: fmt.Sprintf(
		"its data was on node %s, which was deleted: it starts with its data once that node joins again with its data directory; to start it without, POST /api/v1/services/%s/start?discardData=true",
		i.Placement.Node, i.Intent.Name)}
}

// dataUUID names the data directory that will have the data of a static instance; empty for
// other instances, whose placements say nothing about it.
func dataUUID(snap *view.Snapshot, plan *fleet.Plan, node fleet.NodeID) string {
	if n, ok := snap.Nodes.Get(node); ok && plan.Static {
		return n.DataUUID
	}
	return ""
}

// jitter is a random part of a bound.
func jitter(bound time.Duration) time.Duration { return rand.N(bound) + 1 }
