package controller

import (
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// keep updates the resources that are kept for an instance. When others make room for it on
// a node, these resources stay reserved until the instance is placed.
func (s *state) keep(id fleet.InstanceID) {
	have, kept := s.kept[id]
	var want place.Hold
	wanted := false
	if s.assumed[id] == nil {
		want, wanted = roomFor(s.snap, id)
	}
	if kept == wanted && have.Node == want.Node {
		return
	}
	if kept {
		s.model.Release(have)
		delete(s.kept, id)
		s.room++
	}
	if wanted {
		s.model.Charge(want)
		s.kept[id] = want
	}
	if w := s.waiters[id]; w != nil && w.Class != nil { // its class may have changed
		w.Class.Leave(w)
		s.ready.Add(w)
	}
}

// roomFor returns the resources that others free for a waiting instance; false when there
// are none.
func roomFor(snap *view.Snapshot, id fleet.InstanceID) (place.Hold, bool) {
	if snap.Evictions.Len() == 0 {
		return place.Hold{}, false
	}
	i, ok := snap.Instances.Get(id)
	if !ok || !i.NeedsPlacement() {
		return place.Hold{}, false
	}
	plan, ok := snap.Plans.Get(i.Intent.Plan)
	if !ok {
		return place.Hold{}, false
	}
	for _, e := range snap.Evictions.All() {
		if e.For == id {
			return place.Hold{Node: e.Node, Group: i.Intent.Group, Resources: plan.Plan.Resources, Alone: plan.Plan.Where.Alone}, true
		}
	}
	return place.Hold{}, false
}

// place places a request, which may use the resources that are kept for it.
func (s *state) place(r *place.Request) (place.Choice, *place.Unfit) {
	h, kept := s.kept[r.ID]
	if !kept {
		return s.model.Place(r)
	}
	s.model.Release(h)
	choice, unfit := s.model.Place(r)
	if unfit != nil {
		s.model.Charge(h)
	} else {
		delete(s.kept, r.ID)
	}
	return choice, unfit
}
