package controller

import (
	"testing"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// untilWarm waits until a group has one warm instance and returns it.
func (w *world) untilWarm(group fleet.GroupName) *fleet.Instance {
	w.t.Helper()
	var found *fleet.Instance
	w.until("a warm instance", func(s *view.Snapshot) bool {
		n := 0
		for i := range s.GroupInstances(group) {
			if i.Intent.Warm {
				found = i
				n++
			}
		}
		return n == 1
	})
	return found
}

func TestAWarmInstanceTakesThePlaceOfANewOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enforcer("a", plan.DefaultLimits())
	w.group("lobby", func(g *fleet.Group) {
		g.Spec.Scaling.Min, g.Spec.Scaling.Max, g.Spec.Scaling.WarmPoolMinimum = 1, 2, 1
	})
	first := w.untilLiving("lobby", 1)[0].Intent.ID
	w.online(first)
	warm := w.untilWarm("lobby").Intent
	if warm.Reason != fleet.ReasonWarmPool || warm.ID == first {
		t.Errorf("the warm instance is %+v", warm)
	}
	w.online(warm.ID)
	w.change("lobby", func(g *fleet.Group) { g.Spec.Scaling.Min = 2 })
	for _, i := range w.untilLiving("lobby", 2) {
		if i.Intent.ID != first && (i.Intent.ID != warm.ID || i.Intent.Reason != fleet.ReasonBelowMinimum) {
			t.Errorf("%+v was started, want the warm instance to be promoted", i.Intent)
		}
	}
	if next := w.untilWarm("lobby"); next.Intent.ID == warm.ID || next.Intent.ID == first {
		t.Errorf("%s is warm, want a new instance", next.Intent.Name)
	}
}
