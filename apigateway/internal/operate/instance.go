package operate

import (
	"context"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/spawn"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Outcome is what an operation on an instance came to.
type Outcome struct {
	// Instance is as the view shows it after the operation.
	Instance *fleet.Instance
	Rev      int64
	// Changed is false when it was so already.
	Changed bool
	// Waiting names the node that has to come back before what was recorded can be
	// carried out; empty when nothing stands in the way.
	Waiting fleet.NodeID
}

// decision is what to do with an instance; nil changes nothing.
type decision func(s *view.Snapshot, i *fleet.Instance) (*change, error)

// onInstance decides about the instance a name or id means, in turn with all who
// work on its group. NotFound when there is none.
func (o *Operations) onInstance(ctx context.Context, by Actor, ref string, decide decision) (Outcome, error) {
	i, err := find(o.Snapshot(), ref)
	if err != nil {
		return Outcome{}, err
	}
	id := i.Intent.ID // a name may mean another instance later
	out := Outcome{Instance: i}
	out.Rev, err = o.mutateGroup(ctx, by, i.Intent.Group, func(s *view.Snapshot) (change, error) {
		i, ok := s.Instances.Get(id)
		if !ok {
			return change{}, noInstance(ref)
		}
		c, err := decide(s, i)
		out.Changed = c != nil
		if err != nil || c == nil {
			return change{}, err
		}
		return *c, nil
	})
	if err != nil {
		return Outcome{}, err
	}
	s := o.Snapshot()
	if now, ok := s.Instances.Get(id); ok {
		out.Instance = now
	}
	if node := out.Instance.Node(); node != "" && out.Instance.HoldsNode() {
		if _, alive := s.NodeSessions.Get(node); !alive {
			out.Waiting = node
		}
	}
	return out, nil
}

// Find is the instance with an id or a name. NotFound when there is none.
func (o *Operations) Find(ref string) (*fleet.Instance, error) { return find(o.Snapshot(), ref) }

func find(s *view.Snapshot, ref string) (*fleet.Instance, error) {
	i, ok := s.Find(ref)
	if !ok {
		return nil, noInstance(ref)
	}
	return i, nil
}

func noInstance(ref string) error {
	return errs.New(errs.NotFound, "there is no instance %s", clip(ref))
}

// StopInstance asks an instance to stop, with force to be killed. Stopping what
// has stopped succeeds and changes nothing; force makes a running stop a kill.
func (o *Operations) StopInstance(ctx context.Context, by Actor, ref string, force bool) (Outcome, error) {
	return o.onInstance(ctx, by, ref, func(_ *view.Snapshot, i *fleet.Instance) (*change, error) {
		if i.Terminal() && !i.Intent.RestartPending {
			return nil, nil
		}
		asked := i.Intent.Stop != nil && i.Intent.Desired == fleet.DesiredStopped && !i.Intent.RestartPending
		if asked && (i.Intent.Stop.Force || !force) {
			return nil, nil
		}
		next := i.Intent
		next.RestartPending = false
		o.stop(&next, by, force, fleet.ReasonStopRequested, "stopped by "+by.User)
		action := "instance.stop"
		if force {
			action = "instance.force-stop"
		}
		return rewrite(i, next, action), nil
	})
}

// FreezeInstance freezes an instance or, with frozen false, ends that: see
// fleet.Intent.Frozen. Asking for what is so already succeeds and changes nothing.
func (o *Operations) FreezeInstance(ctx context.Context, by Actor, ref string, frozen bool) (Outcome, error) {
	return o.onInstance(ctx, by, ref, func(_ *view.Snapshot, i *fleet.Instance) (*change, error) {
		if i.Intent.Frozen == frozen {
			return nil, nil
		}
		next, action := i.Intent, "instance.unfreeze"
		if next.Frozen = frozen; frozen {
			action = "instance.freeze"
		}
		return rewrite(i, next, action), nil
	})
}

// RestartInstance stops an instance and runs it again under the same id; one that
// has stopped is started. Errors as of StartInstance.
func (o *Operations) RestartInstance(ctx context.Context, by Actor, ref string) (Outcome, error) {
	return o.onInstance(ctx, by, ref, func(s *view.Snapshot, i *fleet.Instance) (*change, error) {
		switch {
		case i.Intent.RestartPending:
			return nil, nil
		case i.Terminal():
			return o.again(s, i, by, fleet.ReasonRestart, "restarted by "+by.User)
		}
		if _, err := o.group(s, i.Intent.Group); err != nil {
			return nil, err
		}
		next := i.Intent
		next.RestartPending = true
		o.stop(&next, by, false, fleet.ReasonRestart, "restarted by "+by.User)
		return rewrite(i, next, "instance.restart"), nil
	})
}

// StartInstance runs a stopped instance again under the same id. One that runs is
// left alone; one that is stopping is started when it has stopped. NotFound when
// its group is gone, Conflict at the group's maximum, Exhausted when no node could
// ever hold it.
func (o *Operations) StartInstance(ctx context.Context, by Actor, ref string) (Outcome, error) {
	return o.onInstance(ctx, by, ref, func(s *view.Snapshot, i *fleet.Instance) (*change, error) {
		switch {
		case i.Intent.RestartPending, !i.Terminal() && i.Intent.Desired == fleet.DesiredRunning:
			return nil, nil
		case i.Terminal():
			return o.again(s, i, by, fleet.ReasonRequested, "started by "+by.User)
		}
		if _, err := o.group(s, i.Intent.Group); err != nil {
			return nil, err
		}
		next := i.Intent
		next.RestartPending = true
		return rewrite(i, next, "instance.start"), nil
	})
}

// StartWithoutData is StartInstance for a static instance whose data was on a node that was
// deleted: it starts with what its templates hold, on any node. Conflict when its data is
// not lost.
func (o *Operations) StartWithoutData(ctx context.Context, by Actor, ref string) (Outcome, error) {
	return o.onInstance(ctx, by, ref, func(s *view.Snapshot, i *fleet.Instance) (*change, error) {
		if err := dataLost(s, i); err != nil {
			return nil, err
		}
		if i.Intent.DiscardsData == i.Placement.Generation && !i.Terminal() {
			return nil, nil
		}
		given := *i
		given.Intent.DiscardsData = i.Placement.Generation
		if i.Terminal() {
			c, err := o.again(s, &given, by, fleet.ReasonRequested, "started without its data by "+by.User)
			if err != nil {
				return nil, err
			}
			c.audit.before = instanceRecord(i.Intent)
			return c, nil
		}
		next := given.Intent
		next.RestartPending = next.Desired == fleet.DesiredStopped
		return rewrite(i, next, "instance.start"), nil
	})
}

// dataLost is Conflict unless the instance's data was on a node that was deleted.
func dataLost(s *view.Snapshot, i *fleet.Instance) error {
	p := i.Placement
	if p == nil {
		return errs.New(errs.Conflict, "instance %s has never been on a node: it has no data to discard", i.Intent.Name)
	}
	if stored, ok := s.Plans.Get(p.Plan); !ok || !stored.Plan.Static {
		return errs.New(errs.Conflict, "instance %s is not static: it has no data to discard", i.Intent.Name)
	}
	if n, ok := s.Nodes.Get(p.Node); ok && p.On(n) {
		return errs.New(errs.Conflict, "the data of instance %s is on node %s, which is not deleted: start the instance without discardData", i.Intent.Name, p.Node)
	}
	return nil
}

// again is the next generation of a finished instance.
func (o *Operations) again(s *view.Snapshot, i *fleet.Instance, by Actor, reason fleet.Reason, message string) (*change, error) {
	g, err := o.group(s, i.Intent.Group)
	if err == nil {
		err = roomFor(s, g, 1)
	}
	if err == nil {
		err = capacity(s, g.Name, s.Whole(g).Spec)
	}
	if err != nil {
		return nil, err
	}
	sp := o.spawner(s)
	b, err := sp.Again(g, i, spawn.Cause{Origin: i.Intent.Origin, Reason: reason, Message: message, By: by.User})
	if err != nil {
		return nil, err
	}
	c, _ := o.birthChange(sp, g, []spawn.Birth{b})
	c.audit = instanceEntry("instance.start", i, &b.Intent)
	return &c, nil
}

func (o *Operations) stop(next *fleet.Intent, by Actor, force bool, reason fleet.Reason, message string) {
	next.Desired = fleet.DesiredStopped
	next.Stop = &fleet.StopRequest{Force: force, At: o.now(), By: by.User, Reason: reason, Message: message}
}

func rewrite(i *fleet.Instance, next fleet.Intent, action string) *change {
	return &change{
		writes: []store.Write{store.Replace(store.IntentKey(next.ID), next, i.Intent.ModRev)},
		audit:  instanceEntry(action, i, &next),
	}
}

// instanceEntry is what the audit says of an instance's change; next is nil when it goes.
func instanceEntry(action string, i *fleet.Instance, next *fleet.Intent) entry {
	e := entry{action: action, resource: "instance", id: string(i.Intent.ID), details: i.Intent.Name, before: instanceRecord(i.Intent)}
	if next != nil {
		e.after = instanceRecord(*next)
	}
	return e
}

// RemoveInstance removes the records of a finished instance, and with them its
// log. MovedError when ifMatch, if it is not 0, is not its intent's revision, Conflict when
// it has not finished.
func (o *Operations) RemoveInstance(ctx context.Context, by Actor, ref string, ifMatch int64) (int64, error) {
	out, err := o.onInstance(ctx, by, ref, func(s *view.Snapshot, i *fleet.Instance) (*change, error) {
		if err := unmoved("instance "+i.Intent.Name, ifMatch, i.Intent.ModRev); err != nil {
			return nil, err
		}
		if err := finished(i); err != nil {
			return nil, err
		}
		return &change{
			writes: records(s, i),
			audit:  instanceEntry("instance.delete", i, nil),
		}, nil
	})
	return out.Rev, err
}

// finished is Conflict for an instance of which something runs or is to run.
func finished(i *fleet.Instance) error {
	switch {
	case i.Intent.RestartPending:
		return errs.New(errs.Conflict, "instance %s is to be started again: stop it first", i.Intent.Name)
	case !i.Terminal():
		return errs.New(errs.Conflict, "instance %s %s: stop it first", i.Intent.Name, i.State().Text())
	case i.HoldsNode():
		return errs.New(errs.Conflict, "an earlier run of instance %s may still be on node %s: try again when that has told its end", i.Intent.Name, i.Placement.Node)
	}
	return nil
}

// records removes all records of an instance; its name only while it points to it.
func records(s *view.Snapshot, i *fleet.Instance) []store.Write {
	id := i.Intent.ID
	out := []store.Write{store.Remove(store.IntentKey(id), i.Intent.ModRev)}
	if claim, ok := s.Name(i.Intent.Group, i.Intent.Ordinal); ok && claim.ID == id {
		out = append(out, store.Remove(store.NameKey(i.Intent.Group, i.Intent.Ordinal), claim.ModRev))
	}
	if p := i.Placement; p != nil {
		out = append(out, store.Remove(store.PlacementKey(p.Node, id), p.ModRev))
	}
	if r := i.Order; r != nil {
		out = append(out, store.Remove(store.OrderKey(r.Node, id), r.ModRev))
	}
	if st := i.Status; st != nil {
		out = append(out, store.Remove(store.StatusKey(id), st.ModRev))
	}
	if p := i.Pending; p != nil {
		out = append(out, store.Remove(store.PendingKey(id), p.ModRev))
	}
	if c, ok := s.Credentials.Get(id); ok {
		out = append(out, store.Remove(store.CredentialKey(id), c.ModRev))
	}
	return out
}
