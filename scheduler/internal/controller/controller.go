package controller

import (
	"context"
	"log/slog"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

const (
	// resync is the safety net: everything that waits is looked at again.
	resync = 30 * time.Second
	// retry is the pause after a commit that failed for etcd's sake or met another owner.
	retry = 250 * time.Millisecond
	// commitTimeout bounds one transaction.
	commitTimeout = 5 * time.Second
)

// Controller places instances. Make it with New before the view runs, then Run it.
type Controller struct {
	store   *store.Client
	owned   func() *store.Ownership
	inbox   *inbox
	log     *slog.Logger
	metrics *Metrics
	// state is owned by Run's goroutine.
	state *state
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
			c.state.room++
		}
	}
}

// pass places what can be placed now and returns when to look again at the latest.
func (c *Controller) pass(ctx context.Context) time.Duration {
	next := resync
	for ctx.Err() == nil {
		now := time.Now()
		c.state.catchUp(c.inbox, now)
		own := c.owned()
		if c.state.snap == nil || own == nil || c.state.snap.Rev < own.Epoch() {
			return next // the next batch or the next ownership wakes us
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
		if !c.commit(ctx, b) {
			return retry
		}
	}
	return next
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
			b.note(i, &place.Unfit{Reason: fleet.ReasonPlanMissing, Message: "its plan is not in the store yet"}, f)
			c.state.waiting[i.Intent.ID] = c.state.room
			continue
		}
		r := requestOf(i, &plan.Plan)
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
		before := b.later
		b.note(i, verdict, f)
		if b.later == before { // a note that came too soon is written when it is due
			c.state.waiting[i.Intent.ID] = c.state.room
		}
	}
	return b
}

func requestOf(i *fleet.Instance, plan *fleet.Plan) *place.Request {
	r := &place.Request{ID: i.Intent.ID, Group: i.Intent.Group, Plan: plan}
	if old := i.Placement; old != nil {
		r.PreferredNode, r.PreferredPort = old.Node, old.Port
		if plan.Static {
			r.Pinned = old.Node
		}
	}
	return r
}

// commit performs a transaction and waits until the model has seen it, or what
// it lost to. False when etcd did not answer or refused us: try again later.
func (c *Controller) commit(ctx context.Context, b *batch) bool {
	began := time.Now()
	attempt, cancel := context.WithTimeout(ctx, commitTimeout)
	rev, err := c.store.Commit(attempt, b.txn)
	cancel()
	c.metrics.commit(time.Since(began), b, err)
	b.undo()
	switch {
	case err == nil:
		for _, id := range b.placed {
			c.log.Debug("placed", "instance", id)
		}
	case errs.Is(err, errs.Fenced): // the session's end is about to be noticed
		c.log.Warn("a placement was refused: the shard is not ours any more", "error", err)
		c.state.room++
		return false
	case errs.Is(err, errs.Conflict), errs.Is(err, errs.AlreadyExists):
		c.log.Debug("a placement met a change, looking again", "error", err)
		c.state.room++ // the notes of this transaction were not written either
	case ctx.Err() != nil:
		return false
	default:
		c.log.Warn("placements could not be committed, trying again", "error", err)
		c.state.room++
		return false
	}
	return c.await(ctx, rev)
}

// await brings the model to a revision.
func (c *Controller) await(ctx context.Context, rev int64) bool {
	timer := time.NewTimer(commitTimeout)
	defer timer.Stop()
	for {
		c.state.catchUp(c.inbox, time.Now())
		if c.state.snap.Rev >= rev {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return false
		case <-c.inbox.wake:
		}
	}
}
