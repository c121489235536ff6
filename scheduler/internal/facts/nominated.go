package facts

import (
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// Nominated returns the resources that evictions free for a waiting instance. ok is false
// when no eviction names the instance.
func Nominated(snap *view.Snapshot, id fleet.InstanceID) (h place.Hold, ok bool) {
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

// Place places a request, which may use the resources that are nominated for it. When it
// succeeds, the model no longer holds those.
func Place(m *place.Model, r *place.Request, nominated map[fleet.InstanceID]place.Hold) (place.Choice, *place.Unfit) {
	if r.Own != nil {
		m.Release(*r.Own)
		defer m.Charge(*r.Own)
	}
	h, ok := nominated[r.ID]
	if ok {
		m.Release(h)
	}
	choice, unfit := m.Place(r)
	if ok && unfit != nil {
		m.Charge(h)
	}
	return choice, unfit
}
