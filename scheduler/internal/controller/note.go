package controller

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

const (
	// noteEvery is the shortest time between two notes about one instance that differ only in counts.
	noteEvery = time.Second
	// notesPerSecond bounds what such notes cost when many instances wait for the same.
	notesPerSecond = 500
)

// note is a reason for waiting that is to be written.
type note struct {
	w        *waiter
	instance *fleet.Instance
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

// noteAll tells all instances of a class the verdict they share.
func (c *Controller) noteAll(class *class, now time.Time) {
	class.refresh = time.Time{}
	for _, w := range class.parked {
		class.refresh = sooner(class.refresh, c.note(w, class, now))
	}
	if many := len(class.parked) / notesPerSecond; many > 0 && !class.refresh.IsZero() { // the more wait, the rarer
		class.refresh = class.refresh.Add(time.Duration(many) * time.Second)
	}
}

// note says why an instance waits, unless that is what its note says already. It
// returns when it is due where it comes too soon after the last one; zero when
// nothing is.
func (c *Controller) note(w *waiter, class *class, now time.Time) (due time.Time) {
	u := class.verdict
	i, ok := c.state.snap.Instances.Get(w.id)
	if !ok || u == nil || w.noting {
		return time.Time{}
	}
	if w.noted > c.state.snap.Rev { // the view does not have the last one yet
		return now.Add(noteEvery)
	}
	f, ok := c.own.Fence(w.group)
	if !ok {
		return time.Time{}
	}
	in := &i.Intent
	n := note{w: w, instance: i, fence: f}
	if have := i.Pending; have != nil {
		n.rev = have.ModRev
		if have.Generation == in.Generation && have.Reason == u.Reason {
			if have.Message == u.Message {
				return time.Time{}
			}
			if due := have.At.Add(noteEvery); due.After(now) {
				return due
			}
		}
	}
	n.pending = fleet.Pending{
		Instance: in.ID, Generation: in.Generation, Reason: u.Reason, Message: u.Message,
		Lost: u.Lost, Nodes: u.Nodes, At: now.UTC(), FromRevision: class.seen,
	}
	w.noting = true
	c.notes = append(c.notes, n)
	return time.Time{}
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
