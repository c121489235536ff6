package controller

import (
	"slices"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// batch is a transaction with the actions it performs.
type batch struct {
	txn     store.Txn
	actions []plan.Action
}

// takes reports whether more comparisons fit.
func (b batch) takes(more, maxOps int) bool {
	return b.txn.Size()+more <= maxOps && b.txn.Bytes() < store.FullBytes
}

// pack puts the writes of actions, in order, into as few transactions of at most maxOps
// comparisons as possible. It never splits an action.
func (t *task) pack(actions []plan.Action, maxOps int) []batch {
	var out []batch
	for _, a := range actions {
		guards, writes := t.writes(a)
		if len(out) == 0 || !out[len(out)-1].takes(len(guards)+len(writes), maxOps) {
			out = append(out, batch{txn: store.Txn{Fences: []store.Fence{t.fence}}})
		}
		b := &out[len(out)-1]
		for _, g := range guards {
			if !slices.Contains(b.txn.Guards, g) {
				b.txn.Guards = append(b.txn.Guards, g)
			}
		}
		b.txn.Writes = append(b.txn.Writes, writes...)
		b.actions = append(b.actions, a)
	}
	return out
}

// writes returns the writes of one action and its additional comparisons.
func (t *task) writes(a plan.Action) ([]store.Guard, []store.Write) {
	switch a.Kind {
	case plan.Stop:
		return t.stop(a)
	case plan.Sleep:
		return t.sleep(a)
	case plan.Retire:
		return t.retirement(a)
	case plan.Admit:
		next := a.Instance.Intent
		next.Standby = false
		return append(t.deploymentUnchanged(a), t.groupUnchanged()), []store.Write{store.Replace(keys.Intent(next.ID), next, a.Instance.Intent.ModRev)}
	case plan.Promote:
		next := a.Instance.Intent
		next.Warm, next.Reason, next.Message = false, a.Reason, a.Message
		return []store.Guard{t.groupUnchanged()}, []store.Write{store.Replace(keys.Intent(next.ID), next, a.Instance.Intent.ModRev)}
	case plan.SetMove:
		return t.setMove(a)
	case plan.Order:
		return t.order(a)
	case plan.ReportLost, plan.EndDeleted:
		return t.lost(a)
	case plan.RemoveEviction:
		return nil, t.settle(a)
	case plan.DeleteInstance:
		return nil, t.deleteInstance(a.Instance)
	case plan.DeleteGroup:
		return nil, t.deleteGroup()
	case plan.SetCrashLoop:
		var rev int64
		if have, ok := t.snap.CrashLoops.Get(t.name); ok {
			rev = have.ModRev
		}
		return []store.Guard{t.groupUnchanged()}, []store.Write{store.Replace(keys.CrashLoop(t.name), a.Loop, rev)}
	case plan.ClearCrashLoop:
		if have, ok := t.snap.CrashLoops.Get(t.name); ok {
			return nil, []store.Write{store.Remove(keys.CrashLoop(t.name), have.ModRev)}
		}
	case plan.SetProgress:
		return t.setProgress(a.Progress)
	case plan.DeleteDeployment:
		return nil, t.deleteDeployment(a.Progress.Number)
	case plan.SetScaling:
		return []store.Guard{t.groupUnchanged()}, []store.Write{t.scaling(a)}
	case plan.ClearScaling:
		if have, ok := t.snap.Scalings.Get(t.name); ok {
			return nil, []store.Write{store.Remove(keys.Scaling(t.name), have.ModRev)}
		}
	case plan.DeletePlan:
		if have, ok := t.snap.Plans.Get(a.Digest); ok {
			return nil, []store.Write{store.Remove(keys.Plan(a.Digest), have.ModRev)}
		}
	case plan.Number:
		return nil, t.number()
	case plan.Create, plan.Restart, plan.Wake: // package spawn makes their writes
	}
	return nil, nil
}

// scaling replaces the group's latest scaling decision.
func (t *task) scaling(a plan.Action) store.Write {
	var rev int64
	if have, ok := t.snap.Scalings.Get(t.name); ok {
		rev = have.ModRev
	}
	d := *a.Scaling
	d.At, d.ScaledAt = t.now, t.group().ScaledAt
	return store.Replace(keys.Scaling(t.name), d, rev)
}

// number gives the group the next number that no group has.
func (t *task) number() []store.Write {
	next := 1
	for _, other := range t.snap.Tenants.All() {
		next = max(next, other.Number+1)
	}
	return []store.Write{
		store.Create(keys.Tenant(t.name), cluster.Tenant{Group: t.name, Number: next, At: t.now}),
		store.Create(keys.TenantNumber(next), cluster.TenantNumber{Group: t.name}),
	}
}

func (t *task) groupUnchanged() store.Guard {
	return store.Unchanged(keys.Group(t.name), t.group().ModRev)
}

func (t *task) stop(a plan.Action) ([]store.Guard, []store.Write) {
	guards := append(slices.Concat(t.drainUnchanged(a), t.deploymentUnchanged(a), t.moveUnchanged(a)), t.groupUnchanged())
	if a.Reason == fleet.ReasonScaledDown || a.Reason == fleet.ReasonAboveMaximum {
		guards = append(guards, store.Unchanged(keys.ActiveOverlays(), t.snap.ActiveOverlays().ModRev))
	}
	next := a.Instance.Intent
	next.Desired, next.RestartPending, next.Retire, next.Sleep = fleet.DesiredStopped, a.Again, nil, nil
	next.Stop = &fleet.StopRequest{
		Force: a.Order == fleet.OrderKill, At: t.now, By: a.By, Reason: a.Reason, Message: a.Message,
	}
	writes := []store.Write{store.Replace(keys.Intent(next.ID), next, a.Instance.Intent.ModRev)}
	if kept := a.Restores; kept != nil {
		own := kept.Intent
		own.ReplacedBy, own.Displaced = "", false
		writes = append(writes, store.Replace(keys.Intent(own.ID), own, kept.Intent.ModRev))
	}
	if a.Order != "" {
		guards = append(guards, placementUnchanged(a.Instance))
		if a.WhileEmpty {
			guards = append(guards, t.unclaimed(a.Instance.Intent.ID), t.snap.FiguresUnchanged(a.Instance.Node(), a.Instance.Intent.ID))
		}
		writes = append(writes, t.orderWrites(a)...)
	}
	return guards, writes
}

// sleep puts an instance to sleep, provided that it is still empty.
func (t *task) sleep(a plan.Action) ([]store.Guard, []store.Write) {
	i := a.Instance
	next := i.Intent
	next.Sleep = &fleet.Nap{At: t.now, By: a.By, Reason: a.Reason, Message: a.Message}
	guards := []store.Guard{
		t.groupUnchanged(), placementUnchanged(i), t.unclaimed(i.Intent.ID), t.snap.FiguresUnchanged(i.Node(), i.Intent.ID),
	}
	return guards, append([]store.Write{store.Replace(keys.Intent(next.ID), next, i.Intent.ModRev)}, t.orderWrites(a)...)
}

// unclaimed returns a guard that the claims on an instance, or their absence, are unchanged.
func (t *task) unclaimed(id fleet.InstanceID) store.Guard {
	if c, ok := t.snap.Claims.Get(id); ok {
		return store.Unchanged(keys.Claims(id), c.ModRev)
	}
	return store.Missing(keys.Claims(id))
}

// retirement sets or ends the retirement of an instance.
func (t *task) retirement(a plan.Action) ([]store.Guard, []store.Write) {
	next := a.Instance.Intent
	next.Retire = nil
	if r := a.Retirement; r != nil {
		set := *r
		set.At = t.now
		next.Retire = &set
	}
	guards := append(slices.Concat(t.drainUnchanged(a), t.deploymentUnchanged(a), t.moveUnchanged(a)), t.groupUnchanged())
	return guards, []store.Write{store.Replace(keys.Intent(next.ID), next, a.Instance.Intent.ModRev)}
}

// drainUnchanged returns a guard for an action of a drain: the node's drain is still as planned.
func (t *task) drainUnchanged(a plan.Action) []store.Guard {
	if a.Reason != fleet.ReasonNodeDrained && a.Reason != fleet.ReasonNodeReady {
		return nil
	}
	return []store.Guard{t.nodeWishesUnchanged(a.Instance.Node())}
}

// nodeWishesUnchanged returns a guard that the desired state of a node, or its absence, is unchanged.
func (t *task) nodeWishesUnchanged(node fleet.NodeID) store.Guard {
	var rev int64
	if d, ok := t.snap.NodesDesired.Get(node); ok {
		rev = d.ModRev
	}
	return store.Unchanged(keys.NodeDesired(node), rev)
}

// settle removes an eviction. With Stays, the instance counts as never replaced.
func (t *task) settle(a plan.Action) []store.Write {
	var writes []store.Write
	if e, ok := t.snap.Evictions.Get(a.Instance.Intent.ID); ok {
		writes = append(writes, store.Remove(keys.Eviction(e.Instance), e.ModRev))
	}
	if a.Stays {
		own := a.Instance.Intent
		own.ReplacedBy, own.Displaced = "", false
		writes = append(writes, store.Replace(keys.Intent(own.ID), own, a.Instance.Intent.ModRev))
	}
	return writes
}

// order returns an order that compares the intent and the placement. If the agent missed a
// deadline, it also compares the status.
func (t *task) order(a plan.Action) ([]store.Guard, []store.Write) {
	i := a.Instance
	guards := []store.Guard{store.Unchanged(keys.Intent(i.Intent.ID), i.Intent.ModRev), placementUnchanged(i)}
	if a.Reason == fleet.ReasonDeadlinePassed {
		var rev int64
		if i.Status != nil {
			rev = i.Status.ModRev
		}
		guards = append(guards, store.Unchanged(keys.Status(i.Intent.ID), rev))
	}
	return guards, t.orderWrites(a)
}

// placementUnchanged returns a guard that the instance's placement, or its absence, is
// unchanged on the node that holds it.
func placementUnchanged(i *fleet.Instance) store.Guard {
	node, _ := i.Held()
	key := keys.Placement(node, i.Intent.ID)
	if i.Stray() {
		return store.Missing(key)
	}
	return store.Unchanged(key, i.Placement.ModRev)
}

// orderWrites writes the order to the node of the instance, and deletes an order for an
// earlier generation on another node.
func (t *task) orderWrites(a plan.Action) []store.Write {
	i := a.Instance
	id := i.Intent.ID
	node, generation := i.Held()
	o := fleet.Order{
		Instance: id, Node: node, Generation: generation, Action: a.Order,
		By: a.By, Reason: a.Reason, Message: a.Message, At: t.now,
	}
	switch {
	case i.Order == nil:
		return []store.Write{store.Create(keys.Order(node, id), o)}
	case i.Order.Node != node:
		return []store.Write{
			store.Remove(keys.Order(i.Order.Node, id), i.Order.ModRev),
			store.Create(keys.Order(node, id), o),
		}
	}
	return []store.Write{store.Replace(keys.Order(node, id), o, i.Order.ModRev)}
}

// lost writes an instance's status in place of its agent. It requires that the node has no
// session.
func (t *task) lost(a plan.Action) ([]store.Guard, []store.Write) {
	in := a.Instance.Intent
	node, generation := a.Instance.Held()
	s, rev := fleet.Status{Instance: in.ID, Group: in.Group, Node: node, Generation: generation}, int64(0)
	if have := a.Instance.Status; have != nil {
		rev = have.ModRev
		if have.Generation == s.Generation {
			s = *have
		}
	}
	s.State, s.Reason, s.Message, s.ChangedAt = fleet.Offline, a.Reason, a.Message, t.now
	guards := []store.Guard{store.Missing(keys.NodeSession(node)), placementUnchanged(a.Instance)}
	if a.Kind == plan.EndDeleted {
		s.State, s.PID, s.FinishedAt = fleet.Stopped, 0, t.now
		if d, ok := t.snap.NodesDesired.Get(node); ok {
			guards = append(guards, store.Unchanged(keys.NodeDesired(node), d.ModRev))
		}
	}
	return guards, []store.Write{store.Replace(keys.Status(in.ID), s, rev)}
}

// deleteInstance deletes all records of an instance, and its name if that still points to it.
func (t *task) deleteInstance(i *fleet.Instance) []store.Write {
	id := i.Intent.ID
	writes := []store.Write{store.Remove(keys.Intent(id), i.Intent.ModRev)}
	if claim, ok := t.snap.Name(i.Intent.Name); ok && claim.ID == id {
		writes = append(writes, store.Remove(keys.NameOf(i.Intent.Name), claim.ModRev))
	}
	if i.Placement != nil {
		writes = append(writes, store.Remove(keys.Placement(i.Placement.Node, id), i.Placement.ModRev))
	}
	if i.Order != nil {
		writes = append(writes, store.Remove(keys.Order(i.Order.Node, id), i.Order.ModRev))
	}
	if i.Status != nil {
		writes = append(writes, store.Remove(keys.Status(id), i.Status.ModRev))
	}
	if i.Pending != nil {
		writes = append(writes, store.Remove(keys.Pending(id), i.Pending.ModRev))
	}
	if e, ok := t.snap.Evictions.Get(id); ok {
		writes = append(writes, store.Remove(keys.Eviction(id), e.ModRev))
	}
	if c, ok := t.snap.Claims.Get(id); ok {
		writes = append(writes, store.Remove(keys.Claims(id), c.ModRev))
	}
	if m, ok := t.snap.Moves().Get(id); ok {
		writes = append(writes, store.Remove(keys.Move(id), m.ModRev))
	}
	if c, ok := t.snap.Copies().Get(id); ok {
		writes = append(writes, store.Remove(keys.Copy(id), c.ModRev))
	}
	if c, ok := t.snap.Credentials.Get(id); ok {
		writes = append(writes, store.Remove(keys.Credential(id), c.ModRev))
	}
	return writes
}

func (t *task) deleteGroup() []store.Write {
	writes := []store.Write{store.Remove(keys.Group(t.name), t.group().ModRev)}
	for _, d := range t.snap.Deployments(t.name) {
		writes = append(writes, t.deleteDeployment(d.Number)...)
	}
	if loop, ok := t.snap.CrashLoops.Get(t.name); ok {
		writes = append(writes, store.Remove(keys.CrashLoop(t.name), loop.ModRev))
	}
	if decided, ok := t.snap.Scalings.Get(t.name); ok {
		writes = append(writes, store.Remove(keys.Scaling(t.name), decided.ModRev))
	}
	return writes
}
