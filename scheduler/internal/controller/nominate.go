package controller

import (
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/scheduler/internal/facts"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// nominate updates the resources that are nominated for an instance. They stay reserved until the
// instance is placed; see facts.Nominated.
func (s *state) nominate(id fleet.InstanceID) {
	have, kept := s.nominated[id]
	var want place.Hold
	wanted := false
	if s.assumed[id] == nil {
		want, wanted = facts.Nominated(s.snap, id)
	}
	if kept == wanted && have.Node == want.Node && have.Resources == want.Resources {
		return
	}
	if kept {
		s.model.Release(have)
		delete(s.nominated, id)
		s.capacityVersion++
	}
	if wanted {
		s.model.Charge(want)
		s.nominated[id] = want
	}
	if w := s.waiters[id]; w != nil && w.Class != nil { // its class may have changed
		w.Class.Leave(w)
		s.ready.Add(w)
	}
}

// place places a request, which may use the resources that are nominated for it.
func (s *state) place(r *place.Request) (place.Choice, *place.Unfit) {
	choice, unfit := facts.Place(s.model, r, s.nominated)
	if unfit == nil {
		delete(s.nominated, r.ID)
	}
	return choice, unfit
}
