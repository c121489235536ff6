package controller

import (
	"context"
	"log/slog"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

const (
	// resync is the safety net: everything that waits is looked at again.
	resync = 30 * time.Second
	// retry is the pause after a commit that failed.
	retry = 250 * time.Millisecond
)

// Controller places instances. Make it with New before the view runs, then Run it.
type Controller struct {
	store   *store.Client
	owned   func() *store.Ownership
	inbox   *inbox
	log     *slog.Logger
	metrics *Metrics

	// Owned by Run's goroutine.
	state *state
	// floor is the revision of the last commit: decisions need a state at or past it.
	floor int64
	// doubt is the batch whose answer was lost; nil when none was.
	doubt *batch
}

// New makes a controller that listens to a view.
func New(c *store.Client, v *view.View, owned func() *store.Ownership, m *Metrics, log *slog.Logger) *Controller {
	ctl := &Controller{store: c, owned: owned, inbox: newInbox(), log: log, metrics: m, state: newState()}
	v.Subscribe(ctl.inbox.hear)
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
	timer := time.NewTimer(resync)
	defer timer.Stop()
	for {
		next := c.pass(ctx)
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.inbox.wake:
		case <-timer.C:
			if next == resync {
				c.state.room++
			}
		}
	}
}

// pass places what can be placed now and returns when to look again at the latest.
func (c *Controller) pass(ctx context.Context) time.Duration {
	next := resync
	for races := 0; ctx.Err() == nil; {
		now := time.Now()
		c.catchUp(now)
		own := c.owned()
		if c.state.snap == nil || own == nil {
			return next // the next batch or the next ownership wakes us
		}
		if c.doubt != nil && !c.settle(ctx, own) {
			return retry
		}
		if c.state.snap.Rev < max(own.Epoch(), c.floor) {
			return next
		}
		c.state.releaseBlocked(now)
		b := c.plan(own, now)
		if !b.later.IsZero() {
			next = min(next, b.later.Sub(now))
		}
		if !c.state.unblock.IsZero() {
			next = min(next, c.state.unblock.Sub(now))
		}
		if len(b.txn.Writes) == 0 {
			return next
		}
		rev, err := c.commit(ctx, b)
		switch {
		case err == nil:
			races = 0
		case races < lostRaces && lostRace(err) && c.await(ctx, rev):
			races++
		default:
			return retry
		}
	}
	return next
}

// catchUp brings the state up to date. When etcd went back in time, the floor is a
// revision of a lost past, which may never be reached.
func (c *Controller) catchUp(now time.Time) {
	before := c.state.snap
	c.state.catchUp(c.inbox, now)
	if before != nil && c.state.snap.Rev < before.Rev {
		c.floor = 0
	}
}

// plan fills one transaction. Unfit instances of one plan share their verdict,
// because room only shrinks while a transaction is filled.
func (c *Controller) plan(own *store.Ownership, now time.Time) *batch {
	b := newBatch(c.state, now, c.store.MaxOps())
	unfit := map[string]*place.Unfit{}
	for _, i := range c.state.due(func(g fleet.GroupName) bool { _, ok := own.Fence(g); return ok }) {
		if b.full() {
			return b
		}
		f, _ := own.Fence(i.Intent.Group)
		plan, ok := c.state.snap.Plans.Get(i.Intent.Plan)
		if !ok {
			c.refuse(b, i, &place.Unfit{Reason: fleet.ReasonPlanMissing, Message: "its plan is not in the store yet"}, f)
			continue
		}
		r := requestOf(i, &plan.Plan, c.state.snap.Nodes)
		class := i.Intent.Plan + "\x00" + string(r.Pinned)
		verdict := unfit[class]
		if verdict == nil {
			var choice place.Choice
			if choice, verdict = c.state.model.Place(r); verdict == nil {
				b.place(i, &plan.Plan, choice, f)
				continue
			}
			unfit[class] = verdict
		}
		c.refuse(b, i, verdict, f)
	}
	return b
}

// refuse has an instance wait until there may be room; one whose note came too
// soon stays due until it is written.
func (c *Controller) refuse(b *batch, i *fleet.Instance, u *place.Unfit, f store.Fence) {
	if postponed := b.note(i, u, f); !postponed {
		c.state.waiting[i.Intent.ID] = c.state.room
	}
}

// requestOf is what is asked of the nodes. A static instance is bound to the node
// its data lies on, unless that is deleted or its group lets it leave a lost one.
func requestOf(i *fleet.Instance, plan *fleet.Plan, nodes view.Table[fleet.NodeID, *fleet.Node]) *place.Request {
	r := &place.Request{ID: i.Intent.ID, Group: i.Intent.Group, Plan: plan}
	if old := i.Placement; old != nil {
		r.PreferredNode, r.PreferredPort = old.Node, old.Port
		if _, known := nodes.Get(old.Node); plan.Static && known && !i.Moving() {
			r.Pinned = old.Node
		}
	}
	return r
}
