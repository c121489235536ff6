package controller

import (
	"cmp"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// state is the model with the instances that wait, at the revision of snap.
type state struct {
	snap  *view.Snapshot
	model *place.Model
	// waiting are the instances that need a placement, with the room version they
	// were last found unfit at; 0 when they were not looked at yet.
	waiting map[fleet.InstanceID]uint64
	// room counts changes that may make something fit.
	room uint64
	// unblock is when the earliest blocked port is free again; zero when none is.
	unblock time.Time
}

func newState() *state {
	return &state{model: place.NewModel(), waiting: map[fleet.InstanceID]uint64{}, room: 1}
}

// catchUp brings the state to the inbox's latest snapshot.
func (s *state) catchUp(in *inbox, now time.Time) {
	batches, latest, lost := in.take()
	if lost {
		s.rebuild(latest, now)
		return
	}
	for _, b := range batches {
		s.snap = b.After
		for i := range b.Changes {
			s.apply(&b.Changes[i], now)
		}
	}
}

func (s *state) rebuild(snap *view.Snapshot, now time.Time) {
	*s = *newState()
	s.snap = snap
	for id := range snap.Nodes.All() {
		s.setNode(id, now)
	}
	for _, i := range snap.Orphans.All() {
		s.hold(nil, i)
	}
	for id, i := range snap.Instances.All() {
		s.hold(nil, i)
		if i.NeedsPlacement() {
			s.waiting[id] = 0
		}
	}
}

func (s *state) apply(c *view.Change, now time.Time) {
	switch c.Kind {
	case view.KindIntent, view.KindPlacement, view.KindStatus:
		s.applyInstance(c)
	case view.KindReport: // changes which node is best, not what fits
		s.setNode(fleet.NodeID(c.Key[0]), now)
	case view.KindNode, view.KindNodeDesired:
		s.room++
		s.setNode(fleet.NodeID(c.Key[0]), now)
	case view.KindSession:
		if c.Key[0] == "node" {
			s.room++
			s.setNode(fleet.NodeID(c.Key[1]), now)
		}
	case view.KindPlan:
		s.room++ // an instance may have waited for its plan
	}
}

// applyInstance moves what the instance holds and whether it waits. Changes of
// records without an intent are rare; they cost a rebuild of their hold only.
func (s *state) applyInstance(c *view.Change) {
	id := fleet.InstanceID(c.Key[len(c.Key)-1])
	s.hold(c.JoinedBefore, c.Joined)
	if c.Instance != nil && c.Instance.NeedsPlacement() {
		if _, ok := s.waiting[id]; !ok || c.Kind == view.KindIntent {
			s.waiting[id] = 0
		}
	} else {
		delete(s.waiting, id)
	}
}

// hold replaces what an instance occupied by what it occupies.
func (s *state) hold(before, after *fleet.Instance) {
	old, had := holdOf(before)
	now, has := holdOf(after)
	if had && has && before.Placement == after.Placement { // most changes are of the status only
		return
	}
	if has {
		s.model.Charge(now)
	}
	if had {
		s.model.Release(old)
		s.room++
	}
}

func holdOf(i *fleet.Instance) (place.Hold, bool) {
	if i == nil || !i.HoldsNode() {
		return place.Hold{}, false
	}
	p := i.Placement
	return place.HoldOf(p.Node, p.Group, p.Resources, p.Port, p.Ports), true
}

func (s *state) setNode(id fleet.NodeID, now time.Time) {
	n, ok := s.snap.Nodes.Get(id)
	if !ok {
		s.model.RemoveNode(id)
		return
	}
	_, live := s.snap.NodeSessions.Get(id)
	m := place.Node{ID: id, Live: live, Runtimes: n.Runtimes, Labels: n.Labels, Capacity: n.Capacity}
	if d, ok := s.snap.NodesDesired.Get(id); ok {
		m.Cordoned = d.Cordoned
		if d.Labels != nil {
			m.Labels = d.Labels
		}
	}
	if r, ok := s.snap.Reports.Get(id); ok {
		m.CPULoad = r.CPU
	}
	s.model.SetNode(m, s.blockedPorts(n, now))
}

// blockedPorts are the ports strangers still hold, as far as anybody knows.
func (s *state) blockedPorts(n *fleet.Node, now time.Time) []int {
	var ports []int
	for _, b := range n.BlockedPorts {
		if !b.Until.After(now) {
			continue
		}
		ports = append(ports, b.Port)
		if s.unblock.IsZero() || b.Until.Before(s.unblock) {
			s.unblock = b.Until
		}
	}
	return ports
}

// releaseBlocked frees ports whose time has come.
func (s *state) releaseBlocked(now time.Time) {
	if s.unblock.IsZero() || s.unblock.After(now) {
		return
	}
	s.unblock = time.Time{}
	s.room++
	for id := range s.snap.Nodes.All() {
		s.setNode(id, now)
	}
}

// due are the instances to look at now: those that wait, whose group we own, and
// that something may have changed for; oldest first.
func (s *state) due(owns func(fleet.GroupName) bool) []*fleet.Instance {
	var out []*fleet.Instance
	for id, at := range s.waiting {
		if at == s.room {
			continue
		}
		i, ok := s.snap.Instances.Get(id)
		if ok && owns(i.Intent.Group) {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b *fleet.Instance) int {
		return cmp.Or(a.Intent.GenerationAt.Compare(b.Intent.GenerationAt), cmp.Compare(a.Intent.Ordinal, b.Intent.Ordinal), cmp.Compare(a.Intent.ID, b.Intent.ID))
	})
	return out
}
