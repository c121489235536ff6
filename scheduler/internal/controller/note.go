package controller

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/scheduler/internal/pending"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

const (
	// noteEvery is the shortest time between two notes about one instance that differ only
	// in counts.
	noteEvery = time.Second
	// notesPerSecond limits the rate of such notes when many instances wait.
	notesPerSecond = 500
	// noteShare reserves one part in noteShare of a transaction for notes when there are
	// more placements than fit.
	noteShare = 8
)

// note is a reason for waiting, to be written to the store.
type note struct {
	w        *pending.Instance
	instance *fleet.Instance
	unfit    *place.Unfit
	pending  fleet.Pending
	rev      int64 // of the note it replaces
	fence    store.Fence
}

// refresh queues the notes that are due.
func (c *Controller) refresh(now time.Time) {
	if c.state.refresh.IsZero() || c.state.refresh.After(now) {
		return
	}
	c.state.refresh = time.Time{}
	for _, class := range c.state.classes {
		if !class.NotesDue.IsZero() && !class.NotesDue.After(now) {
			c.noteAll(class, now)
		}
		c.state.refresh = sooner(c.state.refresh, class.NotesDue)
	}
}

// pause returns the shortest time between two notes about one instance that differ only in
// counts. It grows with the number of waiting instances.
func (s *state) pause() time.Duration {
	return max(noteEvery, time.Duration(len(s.waiters)/notesPerSecond)*time.Second)
}

// notesDue returns when the parked instances of a class get notes about a new verdict: soon
// if its reason has changed, later if only its counts have. Zero means not at all.
func notesDue(c *pending.Class, u *place.Unfit, pause time.Duration, now time.Time) (due time.Time) {
	said := c.Noted
	switch {
	case said == nil: // each gets its own first note
		c.Noted, c.NotedAt = u, now
		return time.Time{}
	case len(c.Parked) < 2, said == u, said.Reason == u.Reason && said.Message == u.Message:
		return time.Time{}
	case said.Reason != u.Reason:
		return c.NotedAt.Add(noteEvery)
	}
	return later(now, c.NotedAt.Add(pause))
}

// noteAll queues notes about the common verdict for all instances of a class.
func (c *Controller) noteAll(class *pending.Class, now time.Time) {
	class.NotesDue, class.Noted, class.NotedAt = time.Time{}, class.Verdict, now
	var due time.Time
	for _, w := range class.Parked {
		due = sooner(due, c.note(w, now))
	}
	c.tellLater(class, due)
}

// note queues a note about why an instance waits, unless the stored note already says so.
// If it is too soon after the last note, it returns when the new one is due; otherwise
// zero.
func (c *Controller) note(w *pending.Instance, now time.Time) (due time.Time) {
	n, due := c.compose(w, now)
	if n != nil && !w.NoteDue {
		w.NoteDue = true
		c.notes = append(c.notes, w)
	}
	return due
}

// nextNote returns the next due note with its current content. It returns nil when no note
// is due, or when the transaction does not cover its fence.
func (c *Controller) nextNote(now time.Time, covered func(store.Fence) bool) *note {
	for len(c.notes) > 0 {
		w := c.notes[0]
		n, due := c.compose(w, now)
		if n != nil && !covered(n.fence) {
			return nil
		}
		c.notes, w.NoteDue = c.notes[1:], false
		if n != nil {
			w.NoteSent = true
			return n
		}
		if w.Class != nil {
			c.tellLater(w.Class, due)
		}
	}
	return nil
}

// tellLater schedules notes for a class about changed counts, not too soon after its last
// ones. A zero due means never.
func (c *Controller) tellLater(class *pending.Class, due time.Time) {
	if !due.IsZero() {
		c.tell(class, later(due, class.NotedAt.Add(c.state.pause())))
	}
}

// tell schedules notes for a class. A zero due means never.
func (c *Controller) tell(class *pending.Class, due time.Time) {
	if !due.IsZero() {
		class.NotesDue = sooner(class.NotesDue, due)
		c.state.refresh = sooner(c.state.refresh, due)
	}
}

// compose builds the note of a waiting instance. It returns nil when there is nothing new
// to say, or when the note is due later.
func (c *Controller) compose(w *pending.Instance, now time.Time) (n *note, due time.Time) {
	i, ok := c.state.snap.Instances.Get(w.ID)
	if !ok || c.state.waiters[w.ID] != w || w.Class == nil || w.Class.Verdict == nil {
		return nil, time.Time{}
	}
	f, ok := c.own.Fence(w.Group)
	switch {
	case !ok:
		return nil, time.Time{}
	case w.NoteSent:
		return nil, now.Add(noteEvery)
	}
	in, u := &i.Intent, w.Class.Verdict
	n = &note{w: w, instance: i, fence: f, unfit: u, pending: fleet.Pending{
		Instance: in.ID, Generation: in.Generation, Reason: u.Reason, Message: u.Message,
		Lost: u.Lost, Nodes: u.Nodes, At: now.UTC(), FromRevision: w.Class.Revision,
	}}
	have := i.Pending
	if w.NoteRevision > c.state.snap.Rev { // the view does not show the last note yet
		have = &fleet.Pending{Rev: record.Rev{ModRev: w.NoteRevision}, Generation: in.Generation, Reason: w.NoteVerdict.Reason, Message: w.NoteVerdict.Message, At: now}
	}
	if have == nil {
		return n, time.Time{}
	}
	n.rev = have.ModRev
	if have.Generation != in.Generation || have.Reason != u.Reason {
		return n, time.Time{}
	}
	if due := have.At.Add(c.state.pause()); have.Message != u.Message && due.After(now) && !have.At.After(now) { // ignore a note from another clock that is ahead
		return nil, due
	} else if have.Message == u.Message {
		return nil, time.Time{}
	}
	return n, time.Time{}
}

// noteBytes is the approximate size in a request of a note without its texts.
const noteBytes = 512

// bytes returns the note's approximate size in a request.
func (n note) bytes() int {
	size := noteBytes + len(n.pending.Message)
	for _, l := range n.pending.Lost {
		size += len(l.Filter) + len(l.Fix)
	}
	return size
}

// part returns the note as a part of a bulk.
func (n note) part() store.Part {
	in := &n.instance.Intent
	return store.Part{
		Guards: []store.Guard{store.Unchanged(keys.Intent(in.ID), in.ModRev)},
		Writes: []store.Write{store.Replace(keys.Pending(in.ID), n.pending, n.rev)},
	}
}
