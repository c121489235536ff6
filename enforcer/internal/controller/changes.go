package controller

import (
	"iter"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
	"github.com/orreryhq/orrery/libs/store/view"
)

// changed queues the groups that a batch affects. It runs on the view's goroutine.
func (c *Controller) changed(b view.Batch) {
	now := c.now()
	c.stamps.heard(&b, now)
	c.outages.heard(&b, now)
	c.empties.heard(&b, now)
	c.forgetDeleted(&b)
	nodes, heads, groups, ready := false, false, map[fleet.GroupName]bool{}, map[fleet.GroupName]bool{}
	for i := range b.Changes {
		c.changedOne(&b, &b.Changes[i])
		c.roomTaken(&b, &b.Changes[i])
		heads = heads || b.Changes[i].Kind == view.KindTemplateHead
		nodes = nodes || b.Changes[i].Kind == view.KindSession || b.Changes[i].Kind == view.KindNode
		if b.Changes[i].Kind == view.KindGroup {
			groups[b.Changes[i].Group()] = true
		}
		if becameOnline(&b.Changes[i]) {
			ready[b.Changes[i].Group()] = true
		}
	}
	for name := range below(b.After, groups) {
		c.look(name)
	}
	c.lookAtDependents(b.After, ready)
	if nodes {
		c.weigh(b.After)
	}
	if heads {
		c.lookAtUnrunnable(b.After)
	}
}

// lookAtUnrunnable queues the groups whose instances may run with a new version of a
// template.
func (c *Controller) lookAtUnrunnable(s *view.Snapshot) {
	for _, i := range s.Instances.All() {
		if i.Unrunnable() {
			c.look(i.Intent.Group)
		}
	}
}

// becameOnline reports whether an instance changed to ONLINE.
func becameOnline(ch *view.Change) bool {
	return ch.Instance != nil && ch.Instance.State() == fleet.Online && (ch.InstanceBefore == nil || ch.InstanceBefore.State() != fleet.Online)
}

// lookAtDependents queues the groups that depend on any of the ready ones.
func (c *Controller) lookAtDependents(s *view.Snapshot, ready map[fleet.GroupName]bool) {
	if len(ready) == 0 {
		return
	}
	for name, g := range s.Groups.All() {
		if slices.ContainsFunc(g.Spec.DependsOn, func(d fleet.GroupName) bool { return ready[d] }) {
			c.look(name)
		}
	}
}

// weigh queues every group when a mass outage begins or ends.
func (c *Controller) weigh(s *view.Snapshot) {
	was := c.mass
	if c.mass = c.outages.count(s, c.now(), c.limits).Mass(c.limits); c.mass == was {
		return
	}
	for name := range c.known() {
		c.queue.Add(name)
	}
}

func (c *Controller) changedOne(b *view.Batch, ch *view.Change) {
	if before := ch.InstanceBefore; before != nil && before.HoldsNode() && (ch.Instance == nil || !ch.Instance.HoldsNode() || ch.Instance.Node() != before.Node()) {
		c.leftDeleted(b, before.Node())
	}
	if before := ch.InstanceBefore; before != nil && before.Stray() && (ch.Instance == nil || !ch.Instance.Stray()) {
		c.leftDeleted(b, before.Status.Node)
	}
	switch ch.Kind {
	case view.KindIntent:
		c.look(ch.Group())
		if dropsPlan(ch) {
			c.queue.AddAfter(sweep, sweepAfter)
		}
	case view.KindGroup, view.KindPlacement, view.KindOrder, view.KindStatus, view.KindCrashLoop, view.KindScaling, view.KindDeployment, view.KindProgress:
		c.look(ch.Group())
	case view.KindEviction, view.KindClaims, view.KindMove, view.KindCopy:
		if i, ok := b.After.Instances.Get(fleet.InstanceID(ch.Key[0])); ok {
			c.look(i.Intent.Group)
		}
	case view.KindSession:
		if ch.Key[0] == "node" {
			n := fleet.NodeID(ch.Key[1])
			c.lookOn(b, n)
			c.leftDeleted(b, n)
		}
	case view.KindNodeDesired:
		n := fleet.NodeID(ch.Key[0])
		c.lookOn(b, n)
		for i := range strays(b.After, n) {
			c.look(i.Intent.Group)
		}
		c.leftDeleted(b, n)
	case view.KindCrash:
		if ch.Before == nil {
			c.queue.AddAfter(prune, pruneAfter)
		}
		if crash, ok := ch.After.(*reports.Crash); ok && judgesCrashes(b.After, crash.Group) {
			c.look(crash.Group)
		}
	case view.KindReport:
		c.reported(b, ch)
	case view.KindTemplateHead: // see lookAtUnrunnable
	case view.KindMaintenance, view.KindActiveOverlay:
		for name := range c.known() {
			c.queue.Add(name)
		}
	case view.KindName, view.KindTenant, view.KindPlan, view.KindPending, view.KindAlloc, view.KindNode, view.KindConfigActive: // no plan depends on them
	}
}

// roomTaken queues the groups of the victims that made room for an instance, because the
// instance may no longer wait.
func (c *Controller) roomTaken(b *view.Batch, ch *view.Change) {
	if b.After.Evictions.Len() == 0 || ch.JoinedBefore == nil && ch.Joined == nil {
		return
	}
	id := fleet.InstanceID(ch.Key[len(ch.Key)-1])
	for victim, e := range b.After.Evictions.All() {
		if e.For != id {
			continue
		}
		if i, ok := b.After.Instances.Get(victim); ok {
			c.look(i.Intent.Group)
		}
	}
}

// look queues an owned group. Groups that are gained later are queued then.
func (c *Controller) look(g fleet.GroupName) {
	if _, ok := c.replica.Owned().Fence(g); ok {
		c.queue.Add(g)
	}
}

// below returns the other groups that inherit from any of the changed ones. It walks the
// groups once per batch, because the first list contains all groups.
func below(s *view.Snapshot, changed map[fleet.GroupName]bool) iter.Seq[fleet.GroupName] {
	return func(yield func(fleet.GroupName) bool) {
		if len(changed) == 0 {
			return
		}
		for name, g := range s.Groups.All() {
			if g.Spec.Parent == "" || changed[name] {
				continue
			}
			of := compose.Ancestors(g, s.Groups.Get)
			if slices.ContainsFunc(of, func(a *fleet.Group) bool { return changed[a.Name] }) && !yield(name) {
				return
			}
		}
	}
}

// lookOn queues the groups with instances on a node.
func (c *Controller) lookOn(b *view.Batch, n fleet.NodeID) {
	for i := range b.After.NodeInstances(n) {
		c.look(i.Intent.Group)
	}
}

// strays returns the stray instances on a node. It scans all instances, because there is no
// index.
func strays(s *view.Snapshot, n fleet.NodeID) iter.Seq[*fleet.Instance] {
	return func(yield func(*fleet.Instance) bool) {
		for _, i := range s.Instances.All() {
			if i.Stray() && i.Status.Node == n && !yield(i) {
				return
			}
		}
	}
}

// leftDeleted queues a sweep if the node is deleted, because it may be empty now.
func (c *Controller) leftDeleted(b *view.Batch, n fleet.NodeID) {
	if d, ok := b.After.NodesDesired.Get(n); ok && d.Deleted {
		c.queue.Add(sweep)
	}
}

// dropsPlan reports whether an intent stopped referring to a plan.
func dropsPlan(ch *view.Change) bool {
	before, ok := ch.Before.(*fleet.Intent)
	if !ok {
		return false
	}
	after, ok := ch.After.(*fleet.Intent)
	return !ok || after.Plan != before.Plan
}

// reported queues the groups of instances whose last player left, because a surplus instance may
// wait for that, and soon those whose load changed otherwise, if they scale by it.
func (c *Controller) reported(b *view.Batch, ch *view.Change) {
	was, is := before(ch), after(ch)
	for id, r := range was {
		i, ok := b.After.Instances.Get(id)
		switch {
		case !ok:
		case r.Players > 0 && is[id].Players == 0:
			c.look(i.Intent.Group)
		case loadDiffers(r, is[id]):
			c.weighLoad(b.After, i.Intent.Group)
		}
	}
	for id := range is {
		if _, known := was[id]; known {
			continue
		}
		if i, ok := b.After.Instances.Get(id); ok {
			c.weighLoad(b.After, i.Intent.Group)
		}
	}
}

// gated reports whether a deployment of a group depends on the ticks per second of its instances.
func gated(s *view.Snapshot, g fleet.GroupName) bool {
	d, ok := s.LatestDeployment(g)
	return ok && d.Active() && d.Options.MinHealthyTPS > 0
}

// judgesCrashes reports whether the latest deployment of a group may fail because of a new kind of crash.
func judgesCrashes(s *view.Snapshot, g fleet.GroupName) bool {
	d, ok := s.LatestDeployment(g)
	return ok && d.Active() && d.Options.HealthGate
}

// loadDiffers reports whether two reports of an instance differ in what scaling depends on.
func loadDiffers(a, b reports.InstanceReport) bool {
	return a.PlayersKnown != b.PlayersKnown || a.Players != b.Players || a.MaxPlayers != b.MaxPlayers || a.TPS != b.TPS
}

// weighLoad queues a group soon if its load decides how many instances it has, or how many of them
// are awake.
func (c *Controller) weighLoad(s *view.Snapshot, name fleet.GroupName) {
	g, ok := s.Groups.Get(name)
	if !ok {
		return
	}
	if scales, _ := scaling.Automatic(&s.Overlaid(g).Spec); !scales && !gated(s, name) && g.Spec.Sleep.AfterEmptySeconds == 0 {
		return
	}
	if _, ok := c.replica.Owned().Fence(name); ok {
		c.queue.AddAfter(name, scaleAfter)
	}
}
