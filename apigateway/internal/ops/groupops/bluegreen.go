package groupops

import (
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Outdated returns the instances that a new deployment of a group would replace, in its order.
func Outdated(s *view.Snapshot, d *deployment.Deployment, players func(*fleet.Instance) int) []deployment.Step {
	var prior *deployment.Deployment
	if j, ok := s.Deployment(d.Group, d.Restores); ok {
		prior = j.Deployment
	}
	return deployment.Steps(slices.Collect(s.GroupInstances(d.Group)), func(i *fleet.Instance) bool {
		var plan *fleet.Plan
		if stored, ok := s.Plans.Get(i.Intent.Plan); ok {
			plan = &stored.Plan
		}
		return d.Current(i, plan, prior)
	}, players)
}

// roomForAll returns Invalid if all instances that a BLUE_GREEN deployment replaces cannot run twice:
// they are too many, the group's maximum is too low, or the nodes are too small.
func roomForAll(s *view.Snapshot, g *fleet.Group, d *deployment.Deployment) error {
	more := len(Outdated(s, d, s.Occupied))
	if more == 0 {
		return nil
	}
	if more > deployment.MaxBlueGreen {
		return errs.Field("strategy", "BLUE_GREEN replaces at most %d instances, and the group %s has %d: use ROLLING or CANARY", deployment.MaxBlueGreen, g.Name, more)
	}
	spec, living := &s.Overlaid(g).Spec, 0
	for i := range s.GroupInstances(g.Name) {
		if i.Living(spec.KeepsLost()) {
			living++
		}
	}
	if most := spec.Scaling.Max; most > 0 && living+more > most {
		return errs.Field("strategy", "BLUE_GREEN starts %d instances beside the %d of the group %s, and its maxInstances is %d: raise it to %d, or use ROLLING", more, living, g.Name, most, living+more)
	}
	if fit := fits(s, s.Whole(g).Spec.Resources, more); fit < more {
		return errs.Field("strategy", "BLUE_GREEN starts %d instances of the group %s at once, and the nodes have room for %d more: add a node, lower the resources, or use ROLLING", more, g.Name, fit)
	}
	return nil
}

// fits returns how many instances with the given needs fit on the nodes beside what runs there, at
// most enough. It considers only resources, so fewer may fit.
func fits(s *view.Snapshot, need fleet.Resources, enough int) int {
	n := 0
	for id, node := range s.Nodes.All() {
		desired, _ := s.NodesDesired.Get(id)
		if _, live := s.NodeSessions.Get(id); !live || desired != nil && desired.Cordoned {
			continue
		}
		room, instances := node.RoomUnder(desired), 0
		free, err := room.Of(node.Capacity)
		if err != nil {
			continue // the scheduler uses no such node either
		}
		for i := range s.NodeInstances(id) {
			if i.HoldsNode() && i.Placement != nil {
				free = free.Sub(i.Occupies())
				instances++
			}
		}
		here := enough
		if room.MaxInstances > 0 {
			here = max(0, room.MaxInstances-instances)
		}
		for _, r := range []struct{ need, free int }{{need.MemoryMiB, free.MemoryMiB}, {need.CPU, free.CPU}, {need.DiskMiB, free.DiskMiB}} {
			if r.need > 0 {
				here = min(here, max(0, r.free)/r.need)
			}
		}
		if n += here; n >= enough {
			return enough
		}
	}
	return n
}
