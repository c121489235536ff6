package controller

import (
	"context"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/scheduler/internal/pending"
)

const (
	// conflictWait limits the wait for the change that won a comparison. The change may be to
	// a key outside the view, which then never shows its revision.
	conflictWait = time.Second
	// backoff limits the random pause after the second lost comparison in a row; it doubles
	// with each.
	backoff = 2 * time.Millisecond
	// fencedPause is the pause after a shard was found to be lost, until the ownership is
	// up to date.
	fencedPause  = 50 * time.Millisecond
	backoffLimit = 6
)

// retryEntry is a waiter that lost a comparison. It is tried again once the view shows rev,
// or at the time at.
type retryEntry struct {
	w    *pending.Instance
	rev  int64
	from time.Time
	at   time.Time
}

// onCommitResult processes the result of a transaction.
func (c *Controller) onCommitResult(f *bulk, now time.Time) {
	c.inProgress--
	c.metrics.commit(f)
	switch {
	case f.resolves != nil:
		c.onResolved(f, now)
	case f.err == nil && f.history != c.history:
		c.keepUnknown(f)
	case f.err == nil:
		c.onCommitted(f, now)
	case errs.Is(f.err, errs.Fenced):
		c.log.Warn("placements were refused: a shard is not ours any more", "error", f.err)
		c.pausedUntil = now.Add(fencedPause)
		c.rollBack(f)
	case errs.Is(f.err, errs.TooLarge):
		c.log.Error("placements are larger than etcd takes: lower the sizes of the values given at start", "error", f.err)
		c.pausedUntil = now.Add(retryPause)
		c.rollBack(f)
	default:
		c.pausedUntil = now.Add(retryPause)
		c.log.Warn("placements could not be committed, trying again", "error", f.err)
		c.keepUnknown(f)
	}
}

// onCommitted processes an answer from etcd: for each part, whether it was committed.
func (c *Controller) onCommitted(f *bulk, now time.Time) {
	placed, lost := 0, 0
	for i := range f.parts {
		p := &f.parts[i]
		switch {
		case p.note != nil:
			c.onNoteResult(p.note, f.done[i], f.rev, now)
		case f.done[i]:
			placed += len(p.entries)
			p.queue.rev = f.rev
			c.free(p.queue)
			p.quotasCommitted(f.rev)
			for _, e := range p.entries {
				e.markCommitted(f.rev)
			}
		default:
			lost++
			p.queue.rev, p.queue.since = 0, f.rev
			for _, e := range p.entries {
				c.onConflict(e, f.rev, now)
			}
			c.free(p.queue)
			p.quotasRefused(f.rev)
		}
	}
	c.adapt(lost, len(f.parts))
	c.keepToOwn(lost, len(f.parts), c.state.snap.Nodes.Len(), now)
	c.unconfirmed = append(c.unconfirmed, f)
	c.log.Debug("committed", "placed", placed, "lost", lost, "revision", f.rev)
}

// markCommitted records that etcd has answered. An entry that the view has already shown stays ended.
func (e *entry) markCommitted(rev int64) {
	if e.phase == sent {
		e.phase, e.rev = committed, rev
	}
	e.w.Races = 0
}

// free lets the next part of a queue be sent.
func (c *Controller) free(l *nodeQueue) {
	l.busy = false
	c.enqueue(l)
	c.state.forget(l)
}

// onNoteResult processes whether a note was written.
func (c *Controller) onNoteResult(n *note, done bool, rev int64, now time.Time) {
	w, class := n.w, n.w.Class
	w.NoteSent = false
	if done {
		w.NoteRevision, w.NoteVerdict = rev, n.unfit
	}
	switch {
	case c.state.waiters[w.ID] != w:
	case class != nil && done:
		if class.Verdict == n.unfit {
			return
		}
		if c.note(w, now); !w.NoteDue { // its counts changed meanwhile
			c.tellLater(class, now)
		}
	case done && c.state.idle(w):
		c.state.ready.Add(w)
	case !done: // it met a change; try again once the view shows it
		if class != nil {
			class.Leave(w)
		}
		if c.state.idle(w) {
			c.retries = append(c.retries, retryEntry{w, rev, now, now.Add(conflictWait)})
		}
	}
}

// onConflict releases a placement that met a change.
func (c *Controller) onConflict(e *entry, rev int64, now time.Time) {
	if e.phase == ended {
		return
	}
	w := e.w
	c.state.end(e)
	c.state.discharge(e.choice.Hold)
	c.state.capacityVersion++
	w.Races++
	w.NoteRevision = 0
	if i, ok := c.state.snap.Instances.Get(w.ID); !ok || !i.NeedsPlacement() || c.state.waiters[w.ID] != nil {
		return
	}
	c.state.waiters[w.ID] = w
	c.state.nominate(w.ID)
	from := now
	if w.Races > 1 {
		from = now.Add(jitter(backoff << min(w.Races, backoffLimit)))
	}
	c.retries = append(c.retries, retryEntry{w, rev, from, from.Add(conflictWait)})
}

// queueRetries queues the waiters of retries whose time has come.
func (c *Controller) queueRetries(now time.Time) {
	rev := c.state.snap.Rev
	c.retries = slices.DeleteFunc(c.retries, func(l retryEntry) bool {
		if !c.state.idle(l.w) {
			return true
		}
		if now.Before(l.from) || rev < l.rev && now.Before(l.at) {
			return false
		}
		c.state.ready.Add(l.w)
		return true
	})
}

// compare releases placements that were answered but that the view, having reached their
// revision, does not show. They either did not happen, or came and went between two lists.
// It also opens the queues that waited for the view.
func (c *Controller) compare() {
	if c.state.snap == nil {
		return
	}
	rev := c.state.snap.Rev
	c.unconfirmed = slices.DeleteFunc(c.unconfirmed, func(f *bulk) bool {
		if f.rev > rev {
			return false
		}
		for i := range f.parts {
			for _, e := range f.parts[i].entries {
				if e.phase == committed {
					c.state.release(e)
				}
			}
		}
		return true
	})
	held := append(c.awaitingView, c.awaitingQuota...)
	c.awaitingView, c.awaitingQuota = nil, nil
	for _, l := range held {
		l.listed = false
		c.enqueue(l)
		c.state.forget(l)
	}
	c.deleteIdleLocks()
}

// rewind forgets the revisions of a lost history, because the view may never reach them.
// The outcome of placements that were answered but not shown is unknown again, because etcd
// may have lost them.
func (c *Controller) rewind() {
	c.history++
	c.retries, c.evictor.since = nil, 0
	c.resetQuotaLocks()
	for _, f := range c.unconfirmed {
		f.parts = slices.DeleteFunc(f.parts, func(p part) bool {
			return !slices.ContainsFunc(p.entries, func(e *entry) bool { return e.phase == sent })
		})
		for i := range f.parts {
			f.parts[i].queue.busy = true
		}
		if len(f.parts) > 0 {
			c.unknown = append(c.unknown, f)
		}
	}
	c.unconfirmed = nil
}

// rollBack releases all parts of a transaction that did not happen.
func (c *Controller) rollBack(f *bulk) {
	for i := range f.parts {
		p := &f.parts[i]
		if p.note != nil {
			c.requeueUnnoted(p.note)
			continue
		}
		for _, e := range p.entries {
			c.state.release(e)
		}
		c.free(p.queue)
		p.quotasUntried()
	}
}

// requeueUnnoted queues an instance again whose note was not written, or perhaps not.
func (c *Controller) requeueUnnoted(n *note) {
	n.w.NoteSent = false
	if n.w.Class != nil {
		n.w.Class.Leave(n.w)
	}
	if c.state.idle(n.w) {
		c.state.ready.Add(n.w)
	}
}

// keepUnknown keeps a transaction whose outcome is unknown. Its placements stay charged and
// its queues busy until resolveUnknown resolves it.
func (c *Controller) keepUnknown(f *bulk) {
	placements := false
	for i := range f.parts {
		if n := f.parts[i].note; n != nil {
			n.w.NoteUnknown = true
			c.requeueUnnoted(n)
		} else {
			placements = true
		}
	}
	if placements {
		c.unknown = append(c.unknown, f)
	}
}

// resolveUnknown resolves a transaction with an unknown outcome. It overwrites the alloc keys that
// the transaction compares. Afterwards each part has either happened or can no longer
// happen. It uses any shard that we own now. The loss of one of the transaction's own
// shards would also stop it, but would not show whether it happened before.
func (c *Controller) resolveUnknown(ctx context.Context) {
	fence, ok := c.own.Any()
	if len(c.unknown) == 0 || c.resolving || !ok {
		return
	}
	f := &bulk{history: c.history, fences: []store.Fence{fence}, resolves: c.unknown[:1:1]}
	for i := range c.unknown[0].parts {
		if p := &c.unknown[0].parts[i]; p.queue != nil {
			f.parts = append(f.parts, part{queue: p.queue, alloc: p.alloc})
		}
	}
	c.resolving = true
	c.launch(func() { c.commit(ctx, f) })
}

// onResolved processes the answer to resolveUnknown. From its revision on, the view shows which
// placements happened.
func (c *Controller) onResolved(f *bulk, now time.Time) {
	c.resolving = false
	if f.history != c.history {
		return
	}
	if errs.Is(f.err, errs.Fenced) {
		c.pausedUntil = now.Add(fencedPause)
		return
	}
	if f.err != nil {
		c.pausedUntil = now.Add(retryPause)
		return
	}
	was := f.resolves[0]
	c.unknown = slices.DeleteFunc(c.unknown, func(d *bulk) bool { return d == was })
	was.rev = f.rev
	for i := range was.parts {
		p := &was.parts[i]
		if p.queue == nil {
			continue
		}
		p.queue.rev, p.queue.since = 0, f.rev
		for _, e := range p.entries {
			e.markCommitted(f.rev)
		}
		c.free(p.queue)
		p.quotasRefused(f.rev)
	}
	c.unconfirmed = append(c.unconfirmed, was)
}
