package controller

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/scheduler/internal/facts"
	"github.com/orreryhq/orrery/scheduler/internal/place"
	"github.com/orreryhq/orrery/scheduler/internal/preempt"
)

// outranks reports whether a priority is at least preempt.Gap above that of any group.
func (s *state) outranks(priority int) bool {
	for _, g := range s.snap.Groups.All() {
		if g.Spec.Priority <= priority-preempt.Gap {
			return true
		}
	}
	return false
}

// victims finds the cheapest instances to evict for a request. Instances that already make
// room or stop soon count as gone. If that alone is enough, or if the request only waits
// for a node's load to fall, there are no victims.
func (s *state) victims(r *place.Request, priority int, now time.Time) (preempt.Victims, bool) {
	if s.model.AwaitsLoad(r) {
		return preempt.Victims{}, false
	}
	holds, leaving := map[fleet.InstanceID]place.Hold{}, map[fleet.NodeID][]place.Hold{}
	var nodes []preempt.Node
	for id := range s.snap.Nodes.All() {
		n := preempt.Node{ID: id}
		for i := range s.snap.NodeInstances(id) {
			h, holding := facts.Hold(i)
			if holding && s.leavesSoon(i, now) {
				leaving[id] = append(leaving[id], h)
			}
			g, known := s.snap.Groups.Get(i.Intent.Group)
			if !holding || !known || g.Spec.Priority > priority-preempt.Gap || i.Asleep() { // its end frees no memory
				continue
			}
			holds[i.Intent.ID] = h
			n.Instances = append(n.Instances, preempt.Instance{
				ID: i.Intent.ID, Priority: g.Spec.Priority, Resources: h.Resources, Placed: i.Placement.ModRev, Bound: !s.mayGo(i, g),
			})
		}
		if len(leaving[id]) > 0 && s.model.FitsWithout(r, id, leaving[id]) {
			return preempt.Victims{}, false
		}
		if len(n.Instances) > 0 {
			n.Lacking = s.model.Lacking(r, id, leaving[id])
			nodes = append(nodes, n)
		}
	}
	var without []place.Hold
	return preempt.Choose(priority, nodes, func(n fleet.NodeID, ids []fleet.InstanceID) bool {
		without = append(without[:0], leaving[n]...)
		for _, id := range ids {
			without = append(without, holds[id])
		}
		return s.model.FitsWithout(r, n, without)
	})
}

// leavesSoon reports whether an instance already makes room for another, or is stopping and
// will be gone within preempt.Quiet. It is better to wait for it than to evict others.
func (s *state) leavesSoon(i *fleet.Instance, now time.Time) bool {
	if e, asked := s.snap.Evictions.Get(i.Intent.ID); asked && e.For != "" {
		return true
	}
	stored, ok := s.snap.Plans.Get(i.Placement.Plan)
	if !ok || i.Intent.Desired != fleet.DesiredStopped || i.Intent.RestartPending || i.Lost() {
		return false
	}
	bound := time.Duration(stored.Plan.Stop.GraceSeconds+fleet.KillAfterSeconds) * time.Second
	return bound <= preempt.Quiet && now.Sub(s.stops[i.Intent.ID]) <= bound
}

// mayGo reports whether an instance may be asked to leave its node: it runs and should run,
// has no players and no data there, and was not asked already.
func (s *state) mayGo(i *fleet.Instance, g *fleet.Group) bool {
	if g.Spec.Static.Enabled || i.Intent.Desired != fleet.DesiredRunning || i.Intent.RestartPending || i.Placement.Generation != i.Intent.Generation {
		return false
	}
	if _, asked := s.snap.Evictions.Get(i.Intent.ID); asked || i.Lost() {
		return false
	}
	if stored, ok := s.snap.Plans.Get(i.Placement.Plan); ok && stored.Plan.Static {
		return false
	}
	r, ok := s.snap.Reports.Get(i.Placement.Node)
	return !ok || r.Instances[i.Intent.ID].Players == 0
}
