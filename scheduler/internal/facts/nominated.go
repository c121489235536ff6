package facts

import (
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// Nominated returns the resources that are kept for an instance until it is placed: on the target of
// its move, or where others are evicted for it. ok is false when none are kept.
func Nominated(snap *view.Snapshot, id fleet.InstanceID) (h place.Hold, ok bool) {
	i, ok := snap.Instances.Get(id)
	if !ok {
		return place.Hold{}, false
	}
	node := nominatedNode(snap, i)
	plan, ok := snap.Plans.Get(i.Intent.Plan)
	if !ok || node == "" {
		return place.Hold{}, false
	}
	return place.Hold{Node: node, Group: i.Intent.Group, Resources: plan.Plan.Resources, Alone: plan.Plan.Where.Alone}, true
}

// nominatedNode returns the node on which resources are kept for an instance, empty for none.
func nominatedNode(snap *view.Snapshot, i *fleet.Instance) fleet.NodeID {
	if m, _ := snap.Moves().Get(i.Intent.ID); m.Active() && !m.Placed(i) {
		return m.Target
	}
	if snap.Evictions.Len() == 0 || !i.NeedsPlacement() {
		return ""
	}
	for _, e := range snap.Evictions.All() {
		if e.For == i.Intent.ID {
			return e.Node
		}
	}
	return ""
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
