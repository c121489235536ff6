package controller

import (
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// want has an instance wait for a placement, unless it does already.
func (s *state) want(i *fleet.Instance) {
	in := &i.Intent
	if s.waiters[in.ID] != nil || s.assumed[in.ID] != nil {
		return
	}
	w := waiterOf(i, s.priority(in.Group))
	s.waiters[in.ID] = w
	s.ready.add(w)
}

func waiterOf(i *fleet.Instance, priority int) *waiter {
	in := &i.Intent
	return &waiter{id: in.ID, group: in.Group, age: in.ModRev, ordinal: in.Ordinal, priority: priority, at: -1}
}

func (s *state) priority(g fleet.GroupName) int { return priority(s.snap, g) }

func priority(snap *view.Snapshot, g fleet.GroupName) int {
	if group, ok := snap.Groups.Get(g); ok {
		return group.Spec.Priority
	}
	return 0
}

// drop ends an instance's waiting.
func (s *state) drop(id fleet.InstanceID) {
	if w := s.waiters[id]; w != nil {
		s.passOn(w)
		s.detach(w)
		delete(s.waiters, id)
	}
}

// passOn has the next of a kind looked at, in the place of one that was taken out for
// all of them and is not of that kind any more, or needs nothing.
func (s *state) passOn(w *waiter) {
	from := w.from
	if w.from = nil; from == nil {
		return
	}
	if next := from.next(); next != nil {
		s.ready.add(next)
	}
}

// detach takes a waiter out of wherever it is.
func (s *state) detach(w *waiter) {
	switch {
	case w.class != nil:
		w.class.leave(w)
	case w.at >= 0:
		s.ready.remove(w)
	default:
		if delete(s.aside[w.group], w); len(s.aside[w.group]) == 0 {
			delete(s.aside, w.group)
		}
	}
}

// back has a waiter look for a place again, if its instance still needs one.
func (s *state) back(w *waiter) {
	i, ok := s.snap.Instances.Get(w.id)
	if !ok || !i.NeedsPlacement() || s.waiters[w.id] != nil || s.assumed[w.id] != nil {
		return
	}
	w.priority = s.priority(w.group)
	s.waiters[w.id] = w
	s.ready.add(w)
	s.keep(w.id)
}

// idle reports whether a waiter waits without being anywhere.
func (s *state) idle(w *waiter) bool { return s.waiters[w.id] == w && w.at < 0 && w.class == nil }

// setAside keeps a waiter until its group is owned.
func (s *state) setAside(w *waiter) {
	if s.aside[w.group] == nil {
		s.aside[w.group] = map[*waiter]struct{}{}
	}
	s.aside[w.group][w] = struct{}{}
}

// takeUp readies the waiters of groups that are owned now.
func (s *state) takeUp(own *store.Ownership) {
	for g, ws := range s.aside {
		if _, ok := own.Fence(g); !ok {
			continue
		}
		delete(s.aside, g)
		for w := range ws {
			s.ready.add(w)
		}
	}
}

// reopen has one instance of each class looked at again, when there may be room.
func (s *state) reopen() {
	if s.reopened == s.room {
		return
	}
	s.reopened = s.room
	for key, c := range s.classes {
		if w := c.next(); w != nil {
			s.ready.add(w)
		} else {
			delete(s.classes, key)
		}
	}
}

// reorder puts a group's waiters where its new priority wants them.
func (s *state) reorder(c *view.Change) {
	g := fleet.GroupName(c.Key[0])
	priority := s.priority(g)
	if old, ok := c.Before.(*fleet.Group); ok && old.Spec.Priority == priority {
		return
	}
	for _, w := range s.waiters {
		if w.group != g || w.priority == priority {
			continue
		}
		queue := &s.ready
		if w.class != nil {
			queue = &w.class.parked
		}
		queued := w.at >= 0
		queue.remove(w)
		w.priority = priority
		if queued {
			queue.add(w)
		}
	}
}
