package controller

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/facts"
	"github.com/orreryhq/orrery/scheduler/internal/inbox"
	"github.com/orreryhq/orrery/scheduler/internal/pending"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

const (
	// resync is the interval at which everything that waits is tried again without a cause.
	// It is a safety net.
	resync = 30 * time.Second
	// retryPause is the pause after a transaction with an unknown outcome.
	retryPause = 250 * time.Millisecond
	// planSlice is how many decisions are made before answers are read again.
	planSlice = 256
)

// Controller places instances. Create it with New before the view runs, then call Run.
type Controller struct {
	store   *store.Client
	owned   func() *store.Ownership
	inbox   *inbox.Inbox
	asks    *asks
	log     *slog.Logger
	metrics *Metrics
	now     func() time.Time
	// answers receives the results of the transactions; sending tracks their goroutines.
	answers chan *bulk
	sending sync.WaitGroup

	// Owned by Run's goroutine.
	state *state
	own   *store.Ownership
	// resynced is the time of the last resync.
	resynced time.Time
	committer
	evictor  evictor
	balancer balancer
}

// Config configures a controller. All fields but Metrics, MaxCPU and Now are required.
type Config struct {
	Store *store.Client
	// View is subscribed to by New, so call its Run after New.
	View *view.View
	// Owned returns the shards that the replica owns.
	Owned   func() *store.Ownership
	Metrics *Metrics
	Log     *slog.Logger
	// MaxCPU is the CPU utilization, 0 to 1, above which a node takes no new instance; see
	// place.Model.SetMaxCPU. 0 excludes no node.
	MaxCPU float64
	// Now returns the wall clock with a monotonic reading. Nil means time.Now.
	Now func() time.Time
}

// New creates a controller that subscribes to the view.
func New(cfg Config) *Controller {
	ctl := &Controller{
		store: cfg.Store, owned: cfg.Owned, inbox: inbox.New(), asks: newAsks(), log: cfg.Log, metrics: cfg.Metrics, now: cfg.Now, state: newState(cfg.MaxCPU),
		answers: make(chan *bulk, depthLimit+1), committer: newCommitter(cfg.Store), evictor: newEvictor(),
	}
	if ctl.now == nil {
		ctl.now = time.Now
	}
	cfg.View.Subscribe(ctl.inbox.Add)
	return ctl
}

// Wake makes Run look again. Call it after ownership has changed.
func (c *Controller) Wake() {
	select {
	case c.inbox.Wake <- struct{}{}:
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
		case <-c.inbox.Wake:
		case f := <-c.answers:
			c.onCommitResult(f, c.now())
		case a := <-c.evictor.answers:
			c.onEvictionResult(a, c.now())
		case <-timer.C:
		}
	}
}

// pass makes the decisions that are possible now, sends what it can, and returns the time
// until the next pass at the latest. It never waits for etcd.
func (c *Controller) pass(ctx context.Context, now time.Time) time.Duration {
	for ctx.Err() == nil {
		c.catchUp(now)
		c.answer(now)
		own := c.owned()
		if c.state.snap == nil || own == nil {
			return resync // the next batch or change of ownership wakes us
		}
		if own != c.own {
			c.own = own
			c.state.queueOwned(own)
			c.state.preferOwn(own, false)
		}
		if wait := c.pausedUntil.Sub(now); wait > 0 {
			return wait
		}
		c.resolveUnknown(ctx)
		if c.state.snap.Rev < c.own.Epoch() {
			return resync
		}
		c.retryDue(now)
		planned := c.plan(now)
		sent := c.send(ctx, now)
		c.rebalance(now)
		c.sendEvictions(ctx)
		if !planned && !sent {
			break
		}
	}
	return c.next(now)
}

// catchUp processes the results of transactions and the new batches of the view.
func (c *Controller) catchUp(now time.Time) {
	for {
		select {
		case f := <-c.answers:
			c.onCommitResult(f, now)
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

// retryDue queues the instances that may fit now although they did not before.
func (c *Controller) retryDue(now time.Time) {
	c.state.releaseBlocked(now)
	c.queueRetries(now)
	c.useAllNodes(now)
	c.resumeSearch(now)
	if now.Sub(c.resynced) >= resync {
		c.resynced = now
		c.state.capacityVersion++
	}
	c.state.retryClasses()
	c.refresh(now)
}

// next returns the time until the next pass at the latest.
func (c *Controller) next(now time.Time) time.Duration {
	next := resync
	at := func(t time.Time) {
		if !t.IsZero() {
			next = max(min(next, t.Sub(now)), time.Millisecond)
		}
	}
	at(c.state.unblock)
	at(c.state.refresh)
	at(c.nextSearch())
	at(c.resynced.Add(resync))
	if c.state.preference.onlyOwn {
		at(c.onlyOwnUntil)
	}
	if len(c.state.balanced) > 0 {
		at(c.balancer.due)
	}
	for _, l := range c.retries {
		at(l.at)
	}
	return next
}

// plan decides about waiting instances until there is enough to send. It returns false when
// there was nothing to decide. Unfit instances of one class share their verdict, because
// resources only shrink until something is released.
func (c *Controller) plan(now time.Time) (planned bool) {
	for n := 0; n < planSlice && !c.enough(c.state.queued); n++ {
		w := c.state.ready.Next()
		if w == nil {
			break
		}
		c.decide(w, now)
		planned = true
	}
	return planned
}

// decide tries to place one instance.
func (c *Controller) decide(w *pending.Instance, now time.Time) {
	f, ok := c.own.Fence(w.Group)
	if !ok {
		c.state.queueNext(w)
		c.state.setAside(w)
		return
	}
	i, ok := c.state.snap.Instances.Get(w.ID)
	if !ok {
		c.state.removeWaiter(w.ID)
		return
	}
	if w.NoteSent { // the answer for the note queues it again; a placement must remove that note
		return
	}
	key := pending.ClassKey{Plan: i.Intent.Plan}
	stored, ok := c.state.snap.Plans.Get(i.Intent.Plan)
	if !ok {
		c.refuse(c.class(key, w), w, facts.PlanMissing(), now)
		return
	}
	r := facts.Request(i, &stored.Plan, c.state.snap)
	to := facts.MoveTarget(c.state.snap, i)
	key.Pinned = r.Pinned
	if _, kept := c.state.nominated[w.ID]; kept || r.Waits != nil || r.Own != nil {
		key.Alone = w.ID
	}
	class := c.class(key, w)
	if class.Verdict != nil && class.CapacityVersion == c.state.capacityVersion {
		c.refuse(class, w, class.Verdict, now)
		return
	}
	if no := facts.Refuse(c.state.ledger, r); no != nil {
		c.refuse(class, w, no, now)
		return
	}
	choice, unfit := c.state.place(r)
	switch {
	case r.Waits != nil:
		c.refuse(class, w, unfit, now)
		return
	case unfit != nil && to != "":
		c.refuse(class, w, facts.MoveRefused(to, unfit), now)
		return
	case unfit != nil:
		c.refuse(class, w, unfit, now)
		c.preempt(class, r.Plan, now)
		return
	}
	class.Verdict = nil
	c.enqueue(c.state.assume(&entry{w: w, noted: w.NoteRevision, unsure: w.NoteUnknown, instance: i, plan: &stored.Plan, choice: choice, dataUUID: dataUUID(c.state.snap, &stored.Plan, choice.Node), fence: f, at: now, seen: c.state.snap.Rev}))
	if next := class.Next(); next != nil { // one of the class fitted; try the next
		c.state.ready.Add(next)
	}
}

// class returns the class for a key and creates a missing one. If the waiter was tried for
// another class, class queues the next instance of that one.
func (c *Controller) class(k pending.ClassKey, w *pending.Instance) *pending.Class {
	cl := c.state.classes[k]
	if cl == nil {
		cl = &pending.Class{Key: k}
		c.state.classes[k] = cl
	}
	if w.From != cl {
		c.state.queueNext(w)
	}
	w.From = nil
	return cl
}

// refuse parks an instance in its class with a verdict. A changed verdict also updates the
// notes of the other parked instances.
func (c *Controller) refuse(class *pending.Class, w *pending.Instance, u *place.Unfit, now time.Time) {
	if u != class.Verdict {
		class.Revision = c.state.snap.Rev
		c.state.noteCause(w.Group, u)
	}
	class.Verdict, class.CapacityVersion = u, c.state.capacityVersion
	class.Park(w)
	c.tellLater(class, c.note(w, now))
	c.tell(class, notesDue(class, u, c.state.pause(), now))
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// sooner returns the earlier of two times; zero means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// dataUUID returns the ID of the node's data directory for a static instance, and "" for
// others.
func dataUUID(snap *view.Snapshot, plan *fleet.Plan, node fleet.NodeID) string {
	if n, ok := snap.Nodes.Get(node); ok && plan.Static {
		return n.DataUUID
	}
	return ""
}

// jitter returns a random duration up to bound.
func jitter(bound time.Duration) time.Duration { return rand.N(bound) + 1 }
