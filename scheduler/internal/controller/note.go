package controller

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

const (
	// noteEvery is the shortest time between two notes about one instance that differ only in counts.
	noteEvery = time.Second
	// notesPerSecond bounds what such notes cost when many instances wait.
	notesPerSecond = 500
	// noteShare is the share of a transaction, one in so many, that notes get when
	// there are more placements than fit.
	noteShare = 8
)

// note is a reason for waiting that is to be written.
type note struct {
	w        *waiter
	instance *fleet.Instance
	unfit    *place.Unfit
	pending  fleet.Pending
	rev      int64 // of the note it replaces
	fence    store.Fence
}

// refresh writes the notes that are due.
func (c *Controller) refresh(now time.Time) {
	if c.state.refresh.IsZero() || c.state.refresh.After(now) {
		return
	}
	c.state.refresh = time.Time{}
	for _, class := range c.state.classes {
		if !class.refresh.IsZero() && !class.refresh.After(now) {
			c.noteAll(class, now)
		}
		c.state.refresh = sooner(c.state.refresh, class.refresh)
	}
}

// pause is the least time between two notes about one instance that differ only in
// counts: the more wait, whatever for, the longer.
func (s *state) pause() time.Duration {
	return max(noteEvery, time.Duration(len(s.waiters)/notesPerSecond)*time.Second)
}

// tellAll is when all that share a new verdict are to be told: soon when the reason is
// another one, and now and then when it is only its counts.
func (c *class) tellAll(u *place.Unfit, pause time.Duration, now time.Time) (due time.Time) {
	said := c.said
	switch {
	case said == nil: // each of them is told on its own
		c.said, c.told = u, now
		return time.Time{}
	case len(c.parked) < 2, said == u, said.Reason == u.Reason && said.Message == u.Message:
		return time.Time{}
	case said.Reason != u.Reason:
		return c.told.Add(noteEvery)
	}
	return later(now, c.told.Add(pause))
}

// noteAll tells all instances of a class the verdict they share.
func (c *Controller) noteAll(class *class, now time.Time) {
	class.refresh, class.said, class.told = time.Time{}, class.verdict, now
	var due time.Time
	for _, w := range class.parked {
		due = sooner(due, c.note(w, now))
	}
	c.tellLater(class, due)
}

// note has written why an instance waits, unless that is what its note says already. It
// returns when it is due where it comes too soon after the last one; zero when
// nothing is.
func (c *Controller) note(w *waiter, now time.Time) (due time.Time) {
	n, due := c.compose(w, now)
	if n != nil && !w.due {
		w.due = true
		c.notes = append(c.notes, w)
	}
	return due
}

// nextNote is the first note that is due, as it is now; nil when there is none, or
// whose fence is not covered.
func (c *Controller) nextNote(now time.Time, covered func(store.Fence) bool) *note {
	for len(c.notes) > 0 {
		w := c.notes[0]
		n, due := c.compose(w, now)
		if n != nil && !covered(n.fence) {
			return nil
		}
		c.notes, w.due = c.notes[1:], false
		if n != nil {
			w.noting = true
			return n
		}
		if w.class != nil {
			c.tellLater(w.class, due)
		}
	}
	return nil
}

// tellLater has a class told of other counts at a time, and not too soon after the last
// time; zero is never.
func (c *Controller) tellLater(class *class, due time.Time) {
	if !due.IsZero() {
		c.tell(class, later(due, class.told.Add(c.state.pause())))
	}
}

// tell has a class told again at a time; zero is never.
func (c *Controller) tell(class *class, due time.Time) {
	if !due.IsZero() {
		class.refresh = sooner(class.refresh, due)
		c.state.refresh = sooner(c.state.refresh, due)
	}
}

// compose makes the note of one that waits; nil when there is nothing to say, or when
// that is due later.
func (c *Controller) compose(w *waiter, now time.Time) (n *note, due time.Time) {
	i, ok := c.state.snap.Instances.Get(w.id)
	if !ok || c.state.waiters[w.id] != w || w.class == nil || w.class.verdict == nil {
		return nil, time.Time{}
	}
	f, ok := c.own.Fence(w.group)
	switch {
	case !ok:
		return nil, time.Time{}
	case w.noting:
		return nil, now.Add(noteEvery)
	}
	in, u := &i.Intent, w.class.verdict
	n = &note{w: w, instance: i, fence: f, unfit: u, pending: fleet.Pending{
		Instance: in.ID, Generation: in.Generation, Reason: u.Reason, Message: u.Message,
		Lost: u.Lost, Nodes: u.Nodes, At: now.UTC(), FromRevision: w.class.seen,
	}}
	have := i.Pending
	if w.noted > c.state.snap.Rev { // the view does not have the last one yet
		have = &fleet.Pending{Rev: fleet.Rev{ModRev: w.noted}, Generation: in.Generation, Reason: w.told.Reason, Message: w.told.Message, At: now}
	}
	if have == nil {
		return n, time.Time{}
	}
	n.rev = have.ModRev
	if have.Generation != in.Generation || have.Reason != u.Reason {
		return n, time.Time{}
	}
	if due := have.At.Add(c.state.pause()); have.Message != u.Message && due.After(now) && !have.At.After(now) { // not by another's clock that is ahead
		return nil, due
	} else if have.Message == u.Message {
		return nil, time.Time{}
	}
	return n, time.Time{}
}

// noteBytes is about what a note without its words takes of a request.
const noteBytes = 512

// bytes is about what it takes of a request.
func (n note) bytes() int {
	size := noteBytes + len(n.pending.Message)
	for _, l := range n.pending.Lost {
		size += len(l.Filter) + len(l.Fix)
	}
	return size
}

// part is the note as a part of a bulk.
func (n note) part() store.Part {
	in := &n.instance.Intent
	return store.Part{
		Guards: []store.Guard{store.Unchanged(store.IntentKey(in.ID), in.ModRev)},
		Writes: []store.Write{store.Replace(store.PendingKey(in.ID), n.pending, n.rev)},
	}
}
