package nodeops

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/drain"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// NodeDrain asks to drain a node.
type NodeDrain struct {
	Node           fleet.NodeID
	TimeoutSeconds int
	Shutdown       bool
	KickMessage    string
	MoveStatic     bool
	// DryRun computes the result and writes nothing. With are drains of other nodes that it assumes, and
	// Also are nodes to which it moves no instance.
	DryRun bool
	With   map[fleet.NodeID]fleet.NodeDrain
	Also   []fleet.NodeID
}

func (d NodeDrain) validate() error {
	var p validate.Problems
	p.Check(d.TimeoutSeconds >= 1 && d.TimeoutSeconds <= fleet.MaxDrainSeconds, "timeout", "must be between 1 and %d seconds, is %d", fleet.MaxDrainSeconds, d.TimeoutSeconds)
	p.Check(utf8.RuneCountInString(d.KickMessage) <= fleet.MaxKickMessage && !validate.HasControl(d.KickMessage), "kickMessage", "must be at most %d characters without control characters", fleet.MaxKickMessage)
	return txn.JoinProblems(p.List)
}

// asks reports whether a drain is what d asks for.
func (d NodeDrain) asks(have *fleet.NodeDrain) bool {
	return have.TimeoutSeconds == d.TimeoutSeconds && have.Shutdown == d.Shutdown && have.KickMessage == d.KickMessage && have.MoveStatic == d.MoveStatic
}

// Drained is the answer to a NodeDrain.
type Drained struct {
	// Drain is the drain of the node, which began before if Changed is false.
	Drain   fleet.NodeDrain
	Changed bool
	// Steps are what the drain does to the instances on the node now.
	Steps []drain.Step
}

// Drain cordons a node and empties it. A node that is being drained in the same way continues. With
// other settings, the drain begins again. A dry run that moves static instances also says where to; it
// is Unavailable when no scheduler answers. NotFound when the node does not exist, Conflict while it is
// being deleted, Invalid names every wrong field.
func (o *Nodes) Drain(ctx context.Context, by txn.Actor, d NodeDrain) (out Drained, err error) {
	if err := d.validate(); err != nil {
		return out, err
	}
	_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		next, err := o.wishes(s, d.Node)
		if err != nil {
			return txn.Change{}, err
		}
		if have := next.Draining(); have != nil && d.asks(have) {
			out = Drained{Drain: *have, Steps: drainSteps(s, d.Node, *have, d.With, o.Now())}
			return txn.Change{}, nil
		}
		set := fleet.NodeDrain{
			ID: strings.ToLower(ulid.Make().String()), By: by.User, At: o.Now(),
			TimeoutSeconds: d.TimeoutSeconds, Shutdown: d.Shutdown, KickMessage: d.KickMessage, MoveStatic: d.MoveStatic,
		}
		out = Drained{Drain: set, Changed: true, Steps: drainSteps(s, d.Node, set, d.With, set.At)}
		if d.DryRun {
			return txn.Change{}, nil
		}
		rev, before := next.ModRev, NodeRecord(next)
		next.Cordoned, next.Drain, next.By, next.At = true, &set, by.User, set.At
		return txn.Change{
			Writes: []store.Write{store.Replace(keys.NodeDesired(d.Node), next, rev), outdate(d.Node)},
			Audit:  txn.Entry{Action: "node.drain", Resource: "node", ID: string(d.Node), Before: before, After: NodeRecord(next)},
		}, nil
	})
	if err == nil && d.DryRun && d.MoveStatic {
		err = o.aim(ctx, d, out.Steps)
	}
	return out, err
}

// aim adds to the steps of a dry run where the static instances would move.
func (o *Nodes) aim(ctx context.Context, d NodeDrain, steps []drain.Step) error {
	targets, err := o.moves.Targets(ctx, d.Node, d.Also)
	if err != nil {
		return err
	}
	for n := range steps {
		t, known := targets[steps[n].Instance.Intent.ID]
		if !steps[n].Moves || steps[n].Move != nil || !known {
			continue
		}
		steps[n].Move = &move.Move{Source: d.Node, Target: t.Node}
		if t.Why != nil {
			steps[n].Move = &move.Move{Source: d.Node, Step: move.Failed, Reason: fleet.ReasonNoNodeFits, Detail: errs.MessageOf(t.Why)}
		}
	}
	return nil
}

// wishes returns the desired state of a node. NotFound when the node does not exist, Conflict while
// it is being deleted.
func (o *Nodes) wishes(s *view.Snapshot, node fleet.NodeID) (fleet.NodeDesired, error) {
	d := fleet.NodeDesired{Node: node}
	if _, ok := s.Nodes.Get(node); !ok {
		return d, errs.New(errs.NotFound, "there is no node %s", txn.Clip(string(node)))
	}
	if have, ok := s.NodesDesired.Get(node); ok {
		d = *have
	}
	if d.Deleted {
		return d, errs.New(errs.Conflict, "node %s is being deleted", node)
	}
	return d, nil
}

// Undrain ends the drain of a node, whether it is complete or not, and uncordons the node. The
// instances that were stopped for the drain start again; it returns them with those that stay. With
// dryRun it only computes them. It changes nothing on a node that is neither drained nor cordoned.
// NotFound when the node does not exist, Conflict while it is revoked or being deleted.
func (o *Nodes) Undrain(ctx context.Context, by txn.Actor, node fleet.NodeID, dryRun bool) (back Back, rev int64, err error) {
	rev, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		next, err := o.wishes(s, node)
		if err != nil {
			return txn.Change{}, err
		}
		var barred int64 // the revision of an expired revocation
		if revoked, known := s.RevokedNodes.Get(node); known {
			if barred = revoked.ModRev; revoked.Holds(o.Now()) {
				return txn.Change{}, errs.New(errs.Conflict, "node %s is revoked until %s: unrevoke it first", node, revoked.Until.Format(time.RFC3339))
			}
		}
		back = backOn(s, node)
		if back.Changed = next.Cordoned || next.Drain != nil; dryRun || !back.Changed {
			return txn.Change{}, nil
		}
		rev, before := next.ModRev, NodeRecord(next)
		next.Cordoned, next.Drain, next.By, next.At = false, nil, by.User, o.Now()
		return txn.Change{
			Guards: []store.Guard{store.Unchanged(keys.RevokedNode(node), barred)},
			Writes: []store.Write{store.Replace(keys.NodeDesired(node), next, rev)},
			Audit:  txn.Entry{Action: "node.undrain", Resource: "node", ID: string(node), Before: before, After: NodeRecord(next)},
		}, nil
	})
	return back, rev, err
}

// ContinueDrain begins the moves of static instances that have ended, if the drain moves them. It
// completes the drain once no instance is left on the node and no move is. If requested, it asks
// the agent to shut down first. Any gateway may call it at any time; several may ask the same agent.
// Unavailable when the agent does not answer, or no scheduler does.
func (o *Nodes) ContinueDrain(ctx context.Context, node fleet.NodeID) error {
	s := o.Snapshot()
	d := drainOf(s, node)
	if d == nil {
		return nil
	}
	for _, step := range drainSteps(s, node, *d, nil, o.Now()) {
		if step.Verb != drain.Move || step.Move != nil {
			continue
		}
		if err := o.moves.MoveForDrain(ctx, node, *d, step.Instance.Intent.ID); err != nil {
			return err
		}
	}
	if s = o.Snapshot(); !o.drained(s, node, d.ID) {
		return nil
	}
	if _, alive := s.NodeSessions.Get(node); alive && d.Shutdown {
		if err := o.agents.Shutdown(ctx, node, "drained by "+d.By); err != nil {
			return err
		}
	}
	_, err := o.Mutate(ctx, txn.Actor{User: d.By}, func(s *view.Snapshot) (txn.Change, error) {
		if !o.drained(s, node, d.ID) {
			return txn.Change{}, nil
		}
		next, _ := s.NodesDesired.Get(node)
		done, after := *next.Drain, *next
		done.CompletedAt = o.Now()
		after.Drain = &done
		return txn.Change{
			Writes: []store.Write{store.Replace(keys.NodeDesired(node), after, next.ModRev)},
			Audit:  txn.Entry{Action: "node.drain.complete", Resource: "node", ID: string(node), Before: NodeRecord(*next), After: NodeRecord(after)},
		}, nil
	})
	return err
}

// drained reports whether nothing is left to do for a drain of a node.
func (o *Nodes) drained(s *view.Snapshot, node fleet.NodeID, id string) bool {
	d := drainOf(s, node)
	return d != nil && d.ID == id && Empty(s, node) &&
		!slices.ContainsFunc(drainSteps(s, node, *d, nil, o.Now()), func(step drain.Step) bool { return step.Verb == drain.Move })
}

// drainOf returns the drain of a node that is not complete, or nil.
func drainOf(s *view.Snapshot, node fleet.NodeID) *fleet.NodeDrain {
	d, _ := s.NodesDesired.Get(node)
	return d.Draining()
}

// Empty reports whether nothing runs on a node and no data is copied from it or to it, as far as the
// records say.
func Empty(s *view.Snapshot, node fleet.NodeID) bool {
	for _, m := range s.Moves().All() {
		if m.Active() && (m.Source == node || m.Target == node) {
			return false
		}
	}
	if named(s, node) {
		return false
	}
	for _, i := range s.Instances.All() {
		if i.Stray() && i.Status.Node == node {
			return false
		}
	}
	return true
}

// DrainSteps returns what a drain of a node does to the instances on it, in the order in which they
// may end. It is the enforcer's decision.
func DrainSteps(s *view.Snapshot, node fleet.NodeID, d fleet.NodeDrain, now time.Time) []drain.Step {
	return drainSteps(s, node, d, nil, now)
}

// drainSteps is DrainSteps while other nodes are assumed to be drained too.
func drainSteps(s *view.Snapshot, node fleet.NodeID, d fleet.NodeDrain, with map[fleet.NodeID]fleet.NodeDrain, now time.Time) (all []drain.Step) {
	for name := range groupsOn(s, node, d) {
		g, ok := s.Groups.Get(name)
		if !ok {
			continue
		}
		of := drain.Group{
			Spec: &s.Overlaid(g).Spec, Target: s.Target(g), Maintenance: s.MaintenanceOf(g).On, Unmet: len(s.Unmet(g)) > 0,
			Draining: func(n fleet.NodeID) *fleet.NodeDrain {
				if n == node {
					return &d
				}
				if other, ok := with[n]; ok {
					return &other
				}
				return drainOf(s, n)
			},
			Move:    func(id fleet.InstanceID) *move.Move { m, _ := s.Move(id); return m },
			Players: s.Occupied,
		}
		for i := range s.GroupInstances(name) {
			of.Instances = append(of.Instances, i)
		}
		steps, _ := of.Of(now)
		for _, step := range steps {
			if step.Node == node {
				all = append(all, step)
			}
		}
	}
	drain.Sort(all)
	return all
}

// groupsOn returns the groups whose instances a drain of a node concerns.
func groupsOn(s *view.Snapshot, node fleet.NodeID, d fleet.NodeDrain) map[fleet.GroupName]bool {
	groups := map[fleet.GroupName]bool{}
	for i := range s.NodeInstances(node) {
		if i.HoldsNode() || d.MoveStatic {
			groups[i.Intent.Group] = true
		}
	}
	if d.MoveStatic {
		for _, m := range s.Moves().All() { // some are on their targets already
			if m.Active() && m.Source == node {
				groups[m.Group] = true
			}
		}
	}
	return groups
}

// Back are the instances that the end of a drain concerns: those that start again, and those that
// were about to stop and stay.
type Back struct {
	Start, Stay []*fleet.Instance
	// Changed is false if the node was neither drained nor cordoned.
	Changed bool
}

// backOn returns the instances on a node that the end of its drain concerns.
func backOn(s *view.Snapshot, node fleet.NodeID) (b Back) {
	for i := range s.NodeInstances(node) {
		g, ok := s.Groups.Get(i.Intent.Group)
		switch {
		case !ok:
		case drain.Down(&g.Spec, i):
			b.Start = append(b.Start, i)
		case drain.Retires(i):
			b.Stay = append(b.Stay, i)
		}
	}
	return b
}

// DownOn returns the instances that were stopped for the drain of a node and start again when it is
// ended.
func DownOn(s *view.Snapshot, node fleet.NodeID) []*fleet.Instance { return backOn(s, node).Start }
