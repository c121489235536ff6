package controller

import (
	"slices"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// batch is a transaction with the actions it performs.
type batch struct {
	txn     store.Txn
	actions []plan.Action
}

// takes reports whether there is room for more comparisons.
func (b batch) takes(more, maxOps int) bool {
	return b.txn.Size()+more <= maxOps && b.txn.Bytes() < store.FullBytes
}

// pack puts the writes of actions into as few transactions of at most maxOps
// comparisons as their order allows. One action is never torn apart.
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

// writes are the changes of one action with the comparisons beside their own.
func (t *task) writes(a plan.Action) ([]store.Guard, []store.Write) {
	switch a.Kind {
	case plan.Stop:
		return t.stop(a)
	case plan.Order:
		return t.order(a)
	case plan.Lose, plan.Bury:
		return t.lost(a)
	case plan.Settle:
		return nil, t.settle(a)
	case plan.Retire:
		return nil, t.retire(a.Instance)
	case plan.DeleteGroup:
		return nil, t.deleteGroup()
	case plan.SetCrashLoop:
		var rev int64
		if have, ok := t.snap.CrashLoops.Get(t.name); ok {
			rev = have.ModRev
		}
		return []store.Guard{t.groupUnchanged()}, []store.Write{store.Replace(store.CrashLoopKey(t.name), a.Loop, rev)}
	case plan.ClearCrashLoop:
		if have, ok := t.snap.CrashLoops.Get(t.name); ok {
			return nil, []store.Write{store.Remove(store.CrashLoopKey(t.name), have.ModRev)}
		}
	case plan.CollectPlan:
		if have, ok := t.snap.Plans.Get(a.Digest); ok {
			return nil, []store.Write{store.Remove(store.PlanKey(a.Digest), have.ModRev)}
		}
	case plan.Create, plan.Again: // package spawn makes their writes
	}
	return nil, nil
}

func (t *task) groupUnchanged() store.Guard {
	return store.Unchanged(store.GroupKey(t.name), t.group().ModRev)
}

func (t *task) stop(a plan.Action) ([]store.Guard, []store.Write) {
	guards := []store.Guard{t.groupUnchanged()}
	next := a.Instance.Intent
	next.Desired, next.RestartPending = fleet.DesiredStopped, false
	next.Stop = &fleet.StopRequest{
		Force: a.Order == fleet.OrderKill, At: t.now, By: a.By, Reason: a.Reason, Message: a.Message,
	}
	writes := []store.Write{store.Replace(store.IntentKey(next.ID), next, a.Instance.Intent.ModRev)}
	if kept := a.Restores; kept != nil {
		own := kept.Intent
		own.ReplacedBy, own.Displaced = "", false
		writes = append(writes, store.Replace(store.IntentKey(own.ID), own, kept.Intent.ModRev))
	}
	if a.Order != "" {
		guards = append(guards, placementUnchanged(a.Instance))
		if a.Reason == fleet.ReasonPreempted || a.Reason == fleet.ReasonRebalanced {
			guards = append(guards, t.snap.FiguresUnchanged(a.Instance.Node(), a.Instance.Intent.ID))
		}
		writes = append(writes, t.orderWrites(a)...)
	}
	return guards, writes
}

// settle removes an eviction. One that stays counts as never replaced.
func (t *task) settle(a plan.Action) []store.Write {
	var writes []store.Write
	if e, ok := t.snap.Evictions.Get(a.Instance.Intent.ID); ok {
		writes = append(writes, store.Remove(store.EvictionKey(e.Instance), e.ModRev))
	}
	if a.Stays {
		own := a.Instance.Intent
		own.ReplacedBy, own.Displaced = "", false
		writes = append(writes, store.Replace(store.IntentKey(own.ID), own, a.Instance.Intent.ModRev))
	}
	return writes
}

// order compares the intent and the placement it is made for, and when it is made
// because the agent let time pass, that the agent has said nothing since.
func (t *task) order(a plan.Action) ([]store.Guard, []store.Write) {
	i := a.Instance
	guards := []store.Guard{store.Unchanged(store.IntentKey(i.Intent.ID), i.Intent.ModRev), placementUnchanged(i)}
	if a.Reason == fleet.ReasonDeadlinePassed {
		var rev int64
		if i.Status != nil {
			rev = i.Status.ModRev
		}
		guards = append(guards, store.Unchanged(store.StatusKey(i.Intent.ID), rev))
	}
	return guards, t.orderWrites(a)
}

// placementUnchanged demands that the instance is placed as it was, or still is not, on the
// node that holds it.
func placementUnchanged(i *fleet.Instance) store.Guard {
	node, _ := i.Held()
	key := store.PlacementKey(node, i.Intent.ID)
	if i.Stray() {
		return store.Missing(key)
	}
	return store.Unchanged(key, i.Placement.ModRev)
}

// orderWrites put the order where the instance is, and take away one that an earlier
// generation had elsewhere.
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
		return []store.Write{store.Create(store.OrderKey(node, id), o)}
	case i.Order.Node != node:
		return []store.Write{
			store.Remove(store.OrderKey(i.Order.Node, id), i.Order.ModRev),
			store.Create(store.OrderKey(node, id), o),
		}
	}
	return []store.Write{store.Replace(store.OrderKey(node, id), o, i.Order.ModRev)}
}

// lost writes the status of an instance in its agent's stead, which nobody may while
// the node has a session.
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
	guards := []store.Guard{store.Missing(store.NodeSessionKey(node)), placementUnchanged(a.Instance)}
	if a.Kind == plan.Bury {
		s.State, s.PID, s.FinishedAt = fleet.Stopped, 0, t.now
		if d, ok := t.snap.NodesDesired.Get(node); ok {
			guards = append(guards, store.Unchanged(store.NodeDesiredKey(node), d.ModRev))
		}
	}
	return guards, []store.Write{store.Replace(store.StatusKey(in.ID), s, rev)}
}

// retire removes all records of an instance; its name only while it points to it.
func (t *task) retire(i *fleet.Instance) []store.Write {
	id := i.Intent.ID
	writes := []store.Write{store.Remove(store.IntentKey(id), i.Intent.ModRev)}
	if claim, ok := t.snap.Name(i.Intent.Group, i.Intent.Ordinal); ok && claim.ID == id {
		writes = append(writes, store.Remove(store.NameKey(i.Intent.Group, i.Intent.Ordinal), claim.ModRev))
	}
	if i.Placement != nil {
		writes = append(writes, store.Remove(store.PlacementKey(i.Placement.Node, id), i.Placement.ModRev))
	}
	if i.Order != nil {
		writes = append(writes, store.Remove(store.OrderKey(i.Order.Node, id), i.Order.ModRev))
	}
	if i.Status != nil {
		writes = append(writes, store.Remove(store.StatusKey(id), i.Status.ModRev))
	}
	if i.Pending != nil {
		writes = append(writes, store.Remove(store.PendingKey(id), i.Pending.ModRev))
	}
	if e, ok := t.snap.Evictions.Get(id); ok {
		writes = append(writes, store.Remove(store.EvictionKey(id), e.ModRev))
	}
	if c, ok := t.snap.Credentials.Get(id); ok {
		writes = append(writes, store.Remove(store.CredentialKey(id), c.ModRev))
	}
	return writes
}

func (t *task) deleteGroup() []store.Write {
	writes := []store.Write{store.Remove(store.GroupKey(t.name), t.group().ModRev)}
	if loop, ok := t.snap.CrashLoops.Get(t.name); ok {
		writes = append(writes, store.Remove(store.CrashLoopKey(t.name), loop.ModRev))
	}
	return writes
}
