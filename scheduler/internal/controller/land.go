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
	// loserWait limits the wait for the change that won a comparison. The change may be to
	// a key outside the view, which then never shows its revision.
	loserWait = time.Second
	// backoff limits the random pause after the second lost comparison in a row; it doubles
	// with each.
	backoff = 2 * time.Millisecond
	// fencedPause is the pause after a shard was found to be lost, until the ownership is
	// up to date.
	fencedPause  = 50 * time.Millisecond
	backoffLimit = 6
)

// loser is a waiter that lost a comparison. It is tried again once the view shows rev, or
// at the time at.
type loser struct {
	w    *pending.Instance
	rev  int64
	from time.Time
	at   time.Time
}

// land processes the result of a transaction.
func (c *Controller) land(f *flight, now time.Time) {
	c.flights--
	c.metrics.commit(f)
	switch {
	case f.settles != nil:
		c.settled(f, now)
	case f.err == nil && f.line != c.line:
		c.doubt(f)
	case f.err == nil:
		c.happened(f, now)
	case errs.Is(f.err, errs.Fenced):
		c.log.Warn("placements were refused: a shard is not ours any more", "error", f.err)
		c.pausedUntil = now.Add(fencedPause)
		c.takeBack(f)
	case errs.Is(f.err, errs.TooLarge):
		c.log.Error("placements are larger than etcd takes: lower the sizes of the values given at start", "error", f.err)
		c.pausedUntil = now.Add(retry)
		c.takeBack(f)
	default:
		c.pausedUntil = now.Add(retry)
		c.log.Warn("placements could not be committed, trying again", "error", f.err)
		c.doubt(f)
	}
}

// happened processes an answer from etcd: for each part, whether it was committed.
func (c *Controller) happened(f *flight, now time.Time) {
	placed, lost := 0, 0
	for i := range f.parts {
		p := &f.parts[i]
		switch {
		case p.note != nil:
			c.noted(p.note, f.done[i], f.rev, now)
		case f.done[i]:
			placed += len(p.entries)
			p.lane.rev = f.rev
			c.free(p.lane)
			p.passed(f.rev)
			for _, e := range p.entries {
				e.made(f.rev)
			}
		default:
			lost++
			p.lane.rev, p.lane.since = 0, f.rev
			for _, e := range p.entries {
				c.lose(e, f.rev, now)
			}
			c.free(p.lane)
			p.refused(f.rev)
		}
	}
	c.adapt(lost, len(f.parts))
	c.landed = append(c.landed, f)
	c.log.Debug("committed", "placed", placed, "lost", lost, "revision", f.rev)
}

// made records that etcd has answered. An entry that the view has already shown stays over.
func (e *entry) made(rev int64) {
	if e.phase == sent {
		e.phase, e.rev = made, rev
	}
	e.w.Races = 0
}

// free lets the next part of a lane be sent.
func (c *Controller) free(l *lane) {
	l.busy = false
	c.enqueue(l)
	c.state.forget(l)
}

// noted processes whether a note was written.
func (c *Controller) noted(n *note, done bool, rev int64, now time.Time) {
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
			c.losers = append(c.losers, loser{w, rev, now, now.Add(loserWait)})
		}
	}
}

// lose releases a placement that met a change.
func (c *Controller) lose(e *entry, rev int64, now time.Time) {
	if e.phase == over {
		return
	}
	w := e.w
	c.state.end(e)
	c.state.discharge(e.choice.Hold)
	c.state.room++
	w.Races++
	w.NoteRevision = 0
	if i, ok := c.state.snap.Instances.Get(w.ID); !ok || !i.NeedsPlacement() || c.state.waiters[w.ID] != nil {
		return
	}
	c.state.waiters[w.ID] = w
	c.state.keep(w.ID)
	from := now
	if w.Races > 1 {
		from = now.Add(jitter(backoff << min(w.Races, backoffLimit)))
	}
	c.losers = append(c.losers, loser{w, rev, from, from.Add(loserWait)})
}

// readmit queues the losers whose time has come.
func (c *Controller) readmit(now time.Time) {
	rev := c.state.snap.Rev
	c.losers = slices.DeleteFunc(c.losers, func(l loser) bool {
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
// It also opens the lanes that waited for the view.
func (c *Controller) compare() {
	if c.state.snap == nil {
		return
	}
	rev := c.state.snap.Rev
	c.landed = slices.DeleteFunc(c.landed, func(f *flight) bool {
		if f.rev > rev {
			return false
		}
		for i := range f.parts {
			for _, e := range f.parts[i].entries {
				if e.phase == made {
					c.state.release(e)
				}
			}
		}
		return true
	})
	held := append(c.held, c.shut...)
	c.held, c.shut = nil, nil
	for _, l := range held {
		l.listed = false
		c.enqueue(l)
		c.state.forget(l)
	}
	c.forgetPassed()
}

// rewind forgets the revisions of a lost history, because the view may never reach them.
// The outcome of placements that were answered but not shown is unknown again, because etcd
// may have lost them.
func (c *Controller) rewind() {
	c.line++
	c.losers, c.evictor.since = nil, 0
	c.forgetGates()
	for _, f := range c.landed {
		f.parts = slices.DeleteFunc(f.parts, func(p part) bool {
			return !slices.ContainsFunc(p.entries, func(e *entry) bool { return e.phase == sent })
		})
		for i := range f.parts {
			f.parts[i].lane.busy = true
		}
		if len(f.parts) > 0 {
			c.doubts = append(c.doubts, f)
		}
	}
	c.landed = nil
}

// takeBack releases all parts of a transaction that did not happen.
func (c *Controller) takeBack(f *flight) {
	for i := range f.parts {
		p := &f.parts[i]
		if p.note != nil {
			c.unnoted(p.note)
			continue
		}
		for _, e := range p.entries {
			c.state.release(e)
		}
		c.free(p.lane)
		p.untried()
	}
}

// unnoted queues an instance again whose note was not written, or perhaps not.
func (c *Controller) unnoted(n *note) {
	n.w.NoteSent = false
	if n.w.Class != nil {
		n.w.Class.Leave(n.w)
	}
	if c.state.idle(n.w) {
		c.state.ready.Add(n.w)
	}
}

// doubt keeps a transaction whose outcome is unknown. Its placements stay charged and its
// lanes busy until settle resolves it.
func (c *Controller) doubt(f *flight) {
	placements := false
	for i := range f.parts {
		if n := f.parts[i].note; n != nil {
			n.w.NoteUnknown = true
			c.unnoted(n)
		} else {
			placements = true
		}
	}
	if placements {
		c.doubts = append(c.doubts, f)
	}
}

// settle resolves a transaction with an unknown outcome. It overwrites the alloc keys that
// the transaction compares. Afterwards each part has either happened or can no longer
// happen. It uses any shard that we own now. The loss of one of the transaction's own
// shards would also stop it, but would not show whether it happened before.
func (c *Controller) settle(ctx context.Context) {
	fence, ok := c.own.Any()
	if len(c.doubts) == 0 || c.settling || !ok {
		return
	}
	f := &flight{line: c.line, fences: []store.Fence{fence}, settles: c.doubts[:1:1]}
	for i := range c.doubts[0].parts {
		if p := &c.doubts[0].parts[i]; p.lane != nil {
			f.parts = append(f.parts, part{lane: p.lane, alloc: p.alloc})
		}
	}
	c.settling = true
	c.launch(func() { c.commit(ctx, f) })
}

// settled processes the answer to settle. From its revision on, the view shows which
// placements happened.
func (c *Controller) settled(f *flight, now time.Time) {
	c.settling = false
	if f.line != c.line {
		return
	}
	if errs.Is(f.err, errs.Fenced) {
		c.pausedUntil = now.Add(fencedPause)
		return
	}
	if f.err != nil {
		c.pausedUntil = now.Add(retry)
		return
	}
	was := f.settles[0]
	c.doubts = slices.DeleteFunc(c.doubts, func(d *flight) bool { return d == was })
	was.rev = f.rev
	for i := range was.parts {
		p := &was.parts[i]
		if p.lane == nil {
			continue
		}
		p.lane.rev, p.lane.since = 0, f.rev
		for _, e := range p.entries {
			e.made(f.rev)
		}
		c.free(p.lane)
		p.refused(f.rev)
	}
	c.landed = append(c.landed, was)
}
