// Package instanceops starts, stops and removes instances, issues their credentials, transfers
// players between them, and passes commands and questions to the agents of their nodes.
package instanceops

import (
	"context"

	"github.com/orreryhq/orrery/apigateway/internal/ops/groupops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/spawn"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Instances changes instances, and asks the agents of their nodes about them. It is safe for concurrent use.
type Instances struct {
	*txn.Committer
	groups *groupops.Groups
	agents *upstream.Agents
}

// New returns the operations on instances.
func New(c *txn.Committer, groups *groupops.Groups, agents *upstream.Agents) *Instances {
	return &Instances{Committer: c, groups: groups, agents: agents}
}

// Outcome is the result of an operation on an instance.
type Outcome struct {
	// Instance is the instance after the operation.
	Instance *fleet.Instance
	Rev      int64
	// Changed is false when nothing had to change.
	Changed bool
	// Waiting names the disconnected node that must return before the change takes effect. Usually
	// empty.
	Waiting fleet.NodeID
}

// decision returns the change of an instance, or nil for none.
type decision func(s *view.Snapshot, i *fleet.Instance) (*txn.Change, error)

// onInstance commits a decision about the instance with a name or id, in turn with other changes of
// its group. NotFound when the instance does not exist.
func (o *Instances) onInstance(ctx context.Context, by txn.Actor, ref string, decide decision) (Outcome, error) {
	i, err := find(o.Snapshot(), ref)
	if err != nil {
		return Outcome{}, err
	}
	id := i.Intent.ID // the name may belong to another instance later
	out := Outcome{Instance: i}
	out.Rev, err = o.MutateGroup(ctx, by, i.Intent.Group, func(s *view.Snapshot) (txn.Change, error) {
		i, ok := s.Instances.Get(id)
		if !ok {
			return txn.Change{}, NoInstance(ref)
		}
		c, err := decide(s, i)
		out.Changed = c != nil
		if err != nil || c == nil {
			return txn.Change{}, err
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

// Find returns the instance with an id or a name. NotFound when it does not exist.
func (o *Instances) Find(ref string) (*fleet.Instance, error) { return find(o.Snapshot(), ref) }

func find(s *view.Snapshot, ref string) (*fleet.Instance, error) {
	i, ok := s.Find(ref)
	if !ok {
		return nil, NoInstance(ref)
	}
	return i, nil
}

// NoInstance is the error for an id or a name without an instance.
func NoInstance(ref string) error {
	return errs.New(errs.NotFound, "there is no instance %s", txn.Clip(ref))
}

// StopInstance asks an instance to stop, with force to be killed. It changes nothing when the
// instance has stopped already. force turns a stop in progress into a kill.
func (o *Instances) StopInstance(ctx context.Context, by txn.Actor, ref string, force bool) (Outcome, error) {
	return o.onInstance(ctx, by, ref, o.stopping(by, force))
}

func (o *Instances) stopping(by txn.Actor, force bool) decision {
	return func(s *view.Snapshot, i *fleet.Instance) (*txn.Change, error) {
		if !stoppable(s, i, force) {
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
	}
}

// stoppable reports whether a stop, or with force a kill, would change anything.
func stoppable(s *view.Snapshot, i *fleet.Instance, force bool) bool {
	comesBack := startsAfterMove(s, i)
	if i.Terminal() && !i.Intent.RestartPending && !comesBack {
		return false
	}
	asked := !comesBack && i.Intent.Stop != nil && i.Intent.Desired == fleet.DesiredStopped && !i.Intent.RestartPending
	return !asked || force && !i.Intent.Stop.Force
}

// startsAfterMove reports whether an instance was stopped for a move and starts again after it.
func startsAfterMove(s *view.Snapshot, i *fleet.Instance) bool {
	m, _ := s.Move(i.Intent.ID)
	stop := i.Intent.Stop
	return m.Active() && i.Intent.Desired == fleet.DesiredStopped && stop != nil && stop.Reason == fleet.ReasonMoved
}

// moving returns Conflict while an instance moves to another node.
func moving(s *view.Snapshot, i *fleet.Instance) error {
	if m, _ := s.Move(i.Intent.ID); m.Active() {
		return errs.New(errs.Conflict, "instance %s moves to node %s: wait for the end of the move, or cancel it", i.Intent.Name, m.Target)
	}
	return nil
}

// FreezeInstance freezes an instance, or ends that with frozen false; see fleet.Intent.Frozen. It
// changes nothing when the instance is in that state already.
func (o *Instances) FreezeInstance(ctx context.Context, by txn.Actor, ref string, frozen bool) (Outcome, error) {
	return o.onInstance(ctx, by, ref, func(s *view.Snapshot, i *fleet.Instance) (*txn.Change, error) {
		if i.Intent.Frozen == frozen {
			return nil, nil
		}
		if err := moving(s, i); err != nil && frozen {
			return nil, err
		}
		next, action := i.Intent, "instance.unfreeze"
		if next.Frozen = frozen; frozen {
			action = "instance.freeze"
		}
		return rewrite(i, next, action), nil
	})
}

// RestartInstance stops an instance and runs it again under the same id. It starts a stopped
// instance. Errors are those of StartInstance.
func (o *Instances) RestartInstance(ctx context.Context, by txn.Actor, ref string) (Outcome, error) {
	return o.onInstance(ctx, by, ref, o.restarting(by, 0))
}

// restarting decides a restart. before is how many instances of the group are assumed to start first.
func (o *Instances) restarting(by txn.Actor, before int) decision {
	return func(s *view.Snapshot, i *fleet.Instance) (*txn.Change, error) {
		if err := moving(s, i); err != nil {
			return nil, err
		}
		switch {
		case i.Intent.RestartPending:
			return nil, nil
		case i.Terminal():
			return o.again(s, i, by, fleet.ReasonRestart, "restarted by "+by.User, before)
		}
		g, err := groupops.Find(s, i.Intent.Group)
		if err == nil {
			err = unlisted(g, i)
		}
		if err != nil {
			return nil, err
		}
		next := i.Intent
		next.RestartPending = true
		o.stop(&next, by, false, fleet.ReasonRestart, "restarted by "+by.User)
		return rewrite(i, next, "instance.restart"), nil
	}
}

// StartInstance runs a stopped instance again under the same id, and wakes a sleeping one. It changes
// nothing for a running instance, and starts a stopping one when it has stopped. NotFound when its group was removed,
// Conflict at the group's maximum, Exhausted when no node could ever hold it.
func (o *Instances) StartInstance(ctx context.Context, by txn.Actor, ref string) (Outcome, error) {
	return o.onInstance(ctx, by, ref, o.starting(by, 0))
}

// starting decides a start. before is how many instances of the group are assumed to start first.
func (o *Instances) starting(by txn.Actor, before int) decision {
	return func(s *view.Snapshot, i *fleet.Instance) (*txn.Change, error) {
		switch {
		case i.Intent.Sleep != nil && i.Intent.Desired == fleet.DesiredRunning && !i.Terminal():
			return wake(i, by), nil
		case i.Intent.RestartPending, !i.Terminal() && i.Intent.Desired == fleet.DesiredRunning:
			return nil, nil
		case moving(s, i) != nil:
			return nil, moving(s, i)
		case i.Terminal():
			return o.again(s, i, by, fleet.ReasonRequested, "started by "+by.User, before)
		}
		g, err := groupops.Find(s, i.Intent.Group)
		if err == nil {
			err = unlisted(g, i)
		}
		if err != nil {
			return nil, err
		}
		next := i.Intent
		next.RestartPending = true
		return rewrite(i, next, "instance.start"), nil
	}
}

// StartWithoutData is StartInstance for a static instance whose node was deleted with its data: it
// starts on any node from its templates. Conflict when the data is not lost.
func (o *Instances) StartWithoutData(ctx context.Context, by txn.Actor, ref string) (Outcome, error) {
	return o.onInstance(ctx, by, ref, func(s *view.Snapshot, i *fleet.Instance) (*txn.Change, error) {
		if err := moving(s, i); err != nil {
			return nil, err
		}
		if err := dataLost(s, i); err != nil {
			return nil, err
		}
		if i.Intent.DiscardsData == i.Placement.Generation && !i.Terminal() {
			return nil, nil
		}
		given := *i
		given.Intent.DiscardsData = i.Placement.Generation
		if i.Terminal() {
			c, err := o.again(s, &given, by, fleet.ReasonRequested, "started without its data by "+by.User, 0)
			if err != nil {
				return nil, err
			}
			c.Audit.Before = InstanceRecord(i.Intent)
			return c, nil
		}
		next := given.Intent
		next.RestartPending = next.Desired == fleet.DesiredStopped
		return rewrite(i, next, "instance.start"), nil
	})
}

// dataLost returns Conflict unless the instance's data was on a deleted node.
func dataLost(s *view.Snapshot, i *fleet.Instance) error {
	p := i.Placement
	if p == nil {
		return errs.New(errs.Conflict, "instance %s has never been on a node: it has no data to discard", i.Intent.Name)
	}
	if stored, ok := s.Plans.Get(p.Plan); !ok || !stored.Plan.Static {
		return errs.New(errs.Conflict, "instance %s is not static: it has no data to discard", i.Intent.Name)
	}
	if to := i.Moved(); to != nil {
		if n, ok := s.Nodes.Get(to.Node); !ok || n.DataUUID != to.DataUUID {
			return nil
		}
	}
	if n, ok := s.Nodes.Get(p.Node); ok && p.On(n) {
		return errs.New(errs.Conflict, "the data of instance %s is on node %s, which is not deleted: start the instance without discardData", i.Intent.Name, p.Node)
	}
	return nil
}

// again returns the change that starts the next generation of a finished instance. before is how many
// instances of its group are assumed to start first.
func (o *Instances) again(s *view.Snapshot, i *fleet.Instance, by txn.Actor, reason fleet.Reason, message string, before int) (*txn.Change, error) {
	g, err := groupops.Find(s, i.Intent.Group)
	if err == nil {
		err = unlisted(g, i)
	}
	if err == nil {
		err = roomFor(s, g, before+1)
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
	c.Audit = instanceEntry("instance.start", i, &b.Intent)
	return &c, nil
}

func (o *Instances) stop(next *fleet.Intent, by txn.Actor, force bool, reason fleet.Reason, message string) {
	next.Desired, next.Sleep = fleet.DesiredStopped, nil
	next.Stop = &fleet.StopRequest{Force: force, At: o.Now(), By: by.User, Reason: reason, Message: message}
}

func rewrite(i *fleet.Instance, next fleet.Intent, action string) *txn.Change {
	return &txn.Change{
		Writes: []store.Write{store.Replace(keys.Intent(next.ID), next, i.Intent.ModRev)},
		Audit:  instanceEntry(action, i, &next),
	}
}

// instanceEntry returns the audit entry of an instance's change. next is nil when the instance is
// removed.
func instanceEntry(action string, i *fleet.Instance, next *fleet.Intent) txn.Entry {
	e := txn.Entry{Action: action, Resource: "instance", ID: string(i.Intent.ID), Details: i.Intent.Name, Before: InstanceRecord(i.Intent)}
	if next != nil {
		e.After = InstanceRecord(*next)
	}
	return e
}

// RemoveInstance removes the records of a finished instance, and with them its log. Conflict when
// it has not finished, MovedError when ifMatch is not 0 and not the revision of its intent.
func (o *Instances) RemoveInstance(ctx context.Context, by txn.Actor, ref string, ifMatch int64) (int64, error) {
	out, err := o.onInstance(ctx, by, ref, removing(ifMatch))
	return out.Rev, err
}

func removing(ifMatch int64) decision {
	return func(s *view.Snapshot, i *fleet.Instance) (*txn.Change, error) {
		if err := txn.CheckRevision("instance "+i.Intent.Name, ifMatch, i.Intent.ModRev); err != nil {
			return nil, err
		}
		if err := finished(i); err != nil {
			return nil, err
		}
		if err := moving(s, i); err != nil {
			return nil, err
		}
		return &txn.Change{
			Writes: records(s, i),
			Audit:  instanceEntry("instance.delete", i, nil),
		}, nil
	}
}

// finished returns Conflict for an instance that runs or is to run.
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

// records returns the removal of all records of an instance. Its name is removed only while it
// refers to the instance.
func records(s *view.Snapshot, i *fleet.Instance) []store.Write {
	id := i.Intent.ID
	out := []store.Write{store.Remove(keys.Intent(id), i.Intent.ModRev)}
	if claim, ok := s.Name(i.Intent.Name); ok && claim.ID == id {
		out = append(out, store.Remove(keys.NameOf(i.Intent.Name), claim.ModRev))
	}
	if p := i.Placement; p != nil {
		out = append(out, store.Remove(keys.Placement(p.Node, id), p.ModRev))
	}
	if r := i.Order; r != nil {
		out = append(out, store.Remove(keys.Order(r.Node, id), r.ModRev))
	}
	if st := i.Status; st != nil {
		out = append(out, store.Remove(keys.Status(id), st.ModRev))
	}
	if p := i.Pending; p != nil {
		out = append(out, store.Remove(keys.Pending(id), p.ModRev))
	}
	if m, ok := s.Moves().Get(id); ok {
		out = append(out, store.Remove(keys.Move(id), m.ModRev))
	}
	if c, ok := s.Copies().Get(id); ok {
		out = append(out, store.Remove(keys.Copy(id), c.ModRev))
	}
	if c, ok := s.Credentials.Get(id); ok {
		out = append(out, store.Remove(keys.Credential(id), c.ModRev))
	}
	return out
}

// InstanceRecord is what the audit keeps of an instance: its desired state, but not the values it
// was given.
func InstanceRecord(i fleet.Intent) any {
	out := map[string]any{"name": i.Name, "group": i.Group, "desired": i.Desired, "generation": i.Generation}
	if i.RestartPending {
		out["restartPending"] = true
	}
	if i.Frozen {
		out["frozen"] = true
	}
	if i.Sleep != nil {
		out["sleep"] = map[string]any{"reason": i.Sleep.Reason, "message": i.Sleep.Message}
	}
	if i.DiscardsData != 0 {
		out["discardsData"] = i.DiscardsData
	}
	if i.Stop != nil {
		out["stop"] = map[string]any{"force": i.Stop.Force, "reason": i.Stop.Reason, "message": i.Stop.Message}
	}
	return out
}
