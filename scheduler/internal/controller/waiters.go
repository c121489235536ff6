package controller

import (
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/facts"
	"github.com/orreryhq/orrery/scheduler/internal/pending"
)

// addWaiter makes an instance wait for a placement, unless it already does.
func (s *state) addWaiter(i *fleet.Instance) {
	in := &i.Intent
	if s.waiters[in.ID] != nil || s.assumed[in.ID] != nil {
		return
	}
	w := facts.Waiting(i, s.rank(in.Group))
	s.waiters[in.ID] = w
	s.ready.Add(w)
}

func (s *state) rank(g fleet.GroupName) pending.Rank { return facts.Rank(s.snap, g) }

// removeWaiter removes a waiter.
func (s *state) removeWaiter(id fleet.InstanceID) {
	if w := s.waiters[id]; w != nil {
		s.queueNext(w)
		s.detach(w)
		delete(s.waiters, id)
	}
}

// queueNext queues the next instance of the class that w was tried for, because w no longer
// represents that class.
func (s *state) queueNext(w *pending.Instance) {
	from := w.From
	if w.From = nil; from == nil {
		return
	}
	if next := from.Next(); next != nil {
		s.ready.Add(next)
	}
}

// detach removes a waiter from its class, queue or group.
func (s *state) detach(w *pending.Instance) {
	switch {
	case w.Class != nil:
		w.Class.Leave(w)
	case w.Index >= 0:
		s.ready.Remove(w)
	default:
		if delete(s.aside[w.Group], w); len(s.aside[w.Group]) == 0 {
			delete(s.aside, w.Group)
		}
	}
}

// requeue makes a waiter wait again if its instance still needs a placement.
func (s *state) requeue(w *pending.Instance) {
	i, ok := s.snap.Instances.Get(w.ID)
	if !ok || !i.NeedsPlacement() || s.waiters[w.ID] != nil || s.assumed[w.ID] != nil {
		return
	}
	w.Rank = s.rank(w.Group)
	s.waiters[w.ID] = w
	s.ready.Add(w)
	s.nominate(w.ID)
}

// idle reports whether a waiter is in no queue and no class.
func (s *state) idle(w *pending.Instance) bool {
	return s.waiters[w.ID] == w && w.Index < 0 && w.Class == nil
}

// setAside keeps a waiter until this replica owns its group.
func (s *state) setAside(w *pending.Instance) {
	if s.aside[w.Group] == nil {
		s.aside[w.Group] = map[*pending.Instance]struct{}{}
	}
	s.aside[w.Group][w] = struct{}{}
}

// queueOwned queues the waiters of groups that this replica now owns.
func (s *state) queueOwned(own *store.Ownership) {
	for g, ws := range s.aside {
		if _, ok := own.Fence(g); !ok {
			continue
		}
		delete(s.aside, g)
		for w := range ws {
			s.ready.Add(w)
		}
	}
}

// retryClasses queues one instance of each class if resources may have become free.
func (s *state) retryClasses() {
	if s.retriedVersion == s.capacityVersion {
		return
	}
	s.retriedVersion = s.capacityVersion
	for key, c := range s.classes {
		if w := c.Next(); w != nil {
			s.ready.Add(w)
		} else {
			delete(s.classes, key)
		}
	}
}

// updateRank applies a group's changed rank to its waiters.
func (s *state) updateRank(c *view.Change) {
	g := fleet.GroupName(c.Key[0])
	rank := s.rank(g)
	if old, ok := c.Before.(*fleet.Group); ok && pending.RankOf(&old.Spec) == rank {
		return
	}
	for _, w := range s.waiters {
		if w.Group != g || w.Rank == rank {
			continue
		}
		queue := &s.ready
		if w.Class != nil {
			queue = &w.Class.Parked
		}
		queued := w.Index >= 0
		queue.Remove(w)
		w.Rank = rank
		if queued {
			queue.Add(w)
		}
	}
}
