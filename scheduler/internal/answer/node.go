package answer

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/scheduler/client"
	"github.com/orreryhq/orrery/scheduler/internal/facts"
)

func (s *simulation) note(format string, args ...any) {
	s.out.Notes = append(s.out.Notes, fmt.Sprintf(format, args...))
}

// holders returns the instances that hold resources on a node, sorted by group and then by
// age.
func (s *simulation) holders(node fleet.NodeID) []*fleet.Instance {
	return slices.DeleteFunc(s.sorted(node), func(i *fleet.Instance) bool { return !i.HoldsNode() })
}

// sorted returns the instances whose latest placement is on a node, sorted by group and then by age.
func (s *simulation) sorted(node fleet.NodeID) []*fleet.Instance {
	var out []*fleet.Instance
	for i := range s.m.Snap.NodeInstances(node) {
		if i.Intent.ID != "" {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b *fleet.Instance) int {
		return cmp.Or(cmp.Compare(a.Intent.Group, b.Intent.Group), a.Intent.CreatedAt.Compare(b.Intent.CreatedAt),
			cmp.Compare(a.Intent.Ordinal, b.Intent.Ordinal), cmp.Compare(a.Intent.ID, b.Intent.ID))
	})
	return out
}

// settle reports the outcome of an instance that needs no placement.
func (s *simulation) settle(i *fleet.Instance, e client.Effect, why fleet.Reason, format string, args ...any) {
	s.out.Instances = append(s.out.Instances, client.Outcome{
		Instance: i.Intent.ID, Name: i.Intent.Name, Group: i.Intent.Group, From: i.Node(),
		Effect: e, Reason: why, Message: fmt.Sprintf(format, args...),
	})
}

// wanted reports whether an instance should run, and returns its group. Otherwise it
// reports the instance as stopped.
func (s *simulation) wanted(i *fleet.Instance) (*fleet.Group, bool) {
	g, ok := s.m.Snap.Groups.Get(i.Intent.Group)
	switch {
	case !ok || g.Deleting:
		s.settle(i, client.EffectStopped, fleet.ReasonGroupDeleted, "its group is gone or being deleted")
	case i.Intent.Desired != fleet.DesiredRunning && !i.Intent.RestartPending:
		s.settle(i, client.EffectStopped, fleet.ReasonStopRequested, "it has been asked to stop")
	default:
		return g, true
	}
	return nil, false
}

// drain requests replacements for the instances on a node that may run elsewhere, and new nodes for
// the static ones if they move.
func (s *simulation) drain(q client.DrainQuestion) error {
	node := q.Node
	if _, ok := s.m.Snap.Nodes.Get(node); !ok {
		return errs.New(errs.NotFound, "there is no node %s", node)
	}
	s.note("a cordon alone keeps new instances off %s and moves nothing: this is what follows when what runs there is replaced", node)
	s.m.Cordon(node)
	for _, other := range q.Also {
		if _, ok := s.m.Snap.Nodes.Get(other); ok && other != node {
			s.m.Cordon(other)
		}
	}
	if q.MoveStatic {
		s.moveStatic(node)
	}
	for _, i := range s.holders(node) {
		g, ok := s.wanted(i)
		switch {
		case !ok:
		case g.Spec.Static.Enabled && q.MoveStatic: // moveStatic has asked for it
		case g.Spec.Static.Enabled:
			s.settle(i, client.EffectKept, fleet.ReasonPinnedWaiting, "its data lies on %s only: it stays there, and once stopped waits for the node to take instances again", node)
		default:
			s.fresh(g, client.Outcome{Replaces: i.Intent.Name, From: node}, "")
		}
	}
	return nil
}

// lose requests what the groups' policies define for a lost node.
func (s *simulation) lose(node fleet.NodeID) error {
	if _, ok := s.m.Snap.Nodes.Get(node); !ok {
		return errs.New(errs.NotFound, "there is no node %s", node)
	}
	s.m.Lose(node)
	mass := s.mass(node)
	var on []*fleet.Instance // of one group
	holders := s.holders(node)
	for n, i := range holders {
		on = append(on, i)
		if n+1 < len(holders) && holders[n+1].Intent.Group == i.Intent.Group {
			continue
		}
		s.loseOf(node, on, mass)
		on = nil
	}
	return nil
}

// mass reports whether the loss would be a mass outage, in which nothing is replaced, and
// notes it.
func (s *simulation) mass(node fleet.NodeID) bool {
	nodes, lost := 0, 0
	for id := range s.m.Snap.Nodes.All() {
		nodes++
		if _, alive := s.m.Snap.NodeSessions.Get(id); !alive || id == node {
			lost++
		}
	}
	if lost < fleet.MassLossNodes || float64(lost) <= fleet.MassLossShare*float64(nodes) {
		return false
	}
	s.note("%d of %d nodes would be lost: unless some were lost long ago or the enforcer has other limits, the enforcer replaces nothing until more return", lost, nodes)
	return true
}

// loseOf applies a group's policy to its instances on a lost node.
func (s *simulation) loseOf(node fleet.NodeID, on []*fleet.Instance, mass bool) {
	var wanted []*fleet.Instance
	var g *fleet.Group
	for _, i := range on {
		if of, ok := s.wanted(i); ok {
			g, wanted = of, append(wanted, i)
		}
	}
	if g == nil {
		return
	}
	kept := func(format string, args ...any) {
		for _, i := range wanted {
			s.settle(i, client.EffectKept, fleet.ReasonNodeLost, format, args...)
		}
	}
	g = s.m.Snap.Overlaid(g)
	switch policy := g.Spec.NodeLossPolicy(); {
	case policy == fleet.NodeLossWait:
		kept("it waits for %s, as its group wants (onNodeLoss: wait)", node)
	case mass:
		kept("so much is lost that nothing is replaced before more is back")
	case policy == fleet.NodeLossStop:
		for _, i := range wanted {
			s.settle(i, client.EffectStopped, fleet.ReasonNodeLost, "its group stops what was on a lost node (onNodeLoss: stop)")
		}
		if s.heals(g) {
			s.refill(g, node, nil)
		}
	case s.m.Snap.Overlaid(g).Spec.Scaling.Mode == fleet.ScalingManual:
		kept("its group is scaled by hand: nothing takes its place")
	case s.m.Snap.MaintenanceOf(g).On:
		kept("its group is in maintenance: nothing takes its place meanwhile")
	case g.Spec.Static.Enabled:
		s.move(g, wanted)
	default:
		s.refill(g, node, wanted)
	}
}

// heals reports whether the enforcer starts missing instances of a group.
func (s *simulation) heals(g *fleet.Group) bool {
	return s.m.Snap.Overlaid(g).Spec.Scaling.Mode != fleet.ScalingManual && !s.m.Snap.MaintenanceOf(g).On
}

// move requests new placements for a static group's lost instances.
func (s *simulation) move(g *fleet.Group, lost []*fleet.Instance) {
	s.note("%s is placed elsewhere only when its old copies have had the time to end", g.Name)
	for _, i := range lost {
		plan := compose.Compose(*s.m.Snap.Whole(g), s.materials, s.random.Uint64())
		r := facts.Request(i, s.plan(&plan, plan.Digest()), s.m.Snap)
		r.Pinned = ""
		s.ask(r, client.Outcome{Instance: i.Intent.ID, Name: i.Intent.Name, Group: g.Name, From: i.Node()})
	}
}

// refill requests replacements for lost instances. Each instance started by hand gets one.
// The others are replaced as far as the minimum, or the load, requires.
func (s *simulation) refill(g *fleet.Group, node fleet.NodeID, lost []*fleet.Instance) {
	living := s.livingWithout(g, node)
	limit, target := g.Spec.Scaling.Max, s.m.Snap.Target(g)
	room := func() bool { return limit <= 0 || living < limit }
	replace := func(i *fleet.Instance) {
		living++
		s.fresh(g, client.Outcome{Replaces: i.Intent.Name, From: node}, i.Intent.ID)
	}
	var own []*fleet.Instance
	for _, i := range lost {
		switch {
		case minimums(g, i):
			own = append(own, i)
		case room():
			replace(i)
		default:
			s.settle(i, client.EffectStopped, fleet.ReasonNodeLost, "its group has its maximum of %d without it", limit)
		}
	}
	for _, i := range own {
		if living < target && room() {
			replace(i)
			continue
		}
		s.settle(i, client.EffectStopped, fleet.ReasonNodeLost, "its group needs %d instances and has them without it", target)
	}
	for ; living < target && room(); living++ {
		s.fresh(g, client.Outcome{}, "")
	}
}

// livingWithout counts a group's living instances that are not on a node.
func (s *simulation) livingWithout(g *fleet.Group, node fleet.NodeID) int {
	n := 0
	for i := range s.m.Snap.GroupInstances(g.Name) {
		if i.Living(g.Spec.KeepsLost()) && !(i.Node() == node && i.HoldsNode()) {
			n++
		}
	}
	return n
}

// minimums reports whether an instance counts as one that the minimum started.
func minimums(g *fleet.Group, i *fleet.Instance) bool {
	return i.Intent.Origin == fleet.OriginMinimum || !g.ScaledAt.IsZero() && !i.Intent.CreatedAt.After(g.ScaledAt)
}
