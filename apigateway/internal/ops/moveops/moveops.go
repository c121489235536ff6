// Package moveops moves static instances with their data to other nodes. It requests and cancels
// moves; the enforcer and the agents of both nodes do the rest.
package moveops

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/client"
)

// Simulate asks a scheduler what would happen, and returns its name.
type Simulate func(ctx context.Context, q client.Question) (client.Simulation, string, error)

// Moves moves instances. It is safe for concurrent use.
type Moves struct {
	*txn.Committer
	simulate Simulate
}

// New returns the operations on moves.
func New(c *txn.Committer, simulate Simulate) *Moves { return &Moves{c, simulate} }

// Request asks to move an instance.
type Request struct {
	// Ref is the name or the ID of the instance.
	Ref string
	// Node is the target. If it is empty, the scheduler chooses one.
	Node            fleet.NodeID
	DeadlineSeconds int
	Message         string
	// DryRun checks everything and writes nothing.
	DryRun bool
}

// Plan is what a move does, or would do.
type Plan struct {
	Move *move.Move
	// Players are the instance's players, and Bytes is the last measured size of its directory, 0 if
	// unknown.
	Players int
	Bytes   int64
	// Steps say in sentences what happens, in order.
	Steps []string
}

func (r Request) validate() error {
	var p validate.Problems
	p.Check(r.DeadlineSeconds >= 0 && r.DeadlineSeconds <= move.MaxDeadlineSeconds, "deadlineSeconds", "must be between 0 and %d, is %d", move.MaxDeadlineSeconds, r.DeadlineSeconds)
	p.Check(utf8.RuneCountInString(r.Message) <= move.MaxMessage && !validate.HasControl(r.Message), "message", "must be at most %d characters without control characters", move.MaxMessage)
	if r.Node != "" {
		p.Check(r.Node.Validate() == nil, "node", "is not the ID of a node")
	}
	return txn.JoinProblems(p.List)
}

// MoveInstance begins to move an instance. NotFound when the instance does not exist, Invalid for a
// wrong field, Conflict when it cannot move now or the target cannot take it, Unavailable when no
// scheduler answers.
func (o *Moves) MoveInstance(ctx context.Context, by txn.Actor, r Request) (Plan, error) {
	if err := r.validate(); err != nil {
		return Plan{}, err
	}
	s := o.Snapshot()
	i, err := find(s, r.Ref)
	if err == nil {
		err = movable(s, i)
	}
	if err == nil && r.Node != "" {
		err = receives(s, i, r.Node)
	}
	if err != nil {
		return Plan{}, err
	}
	target, err := o.choose(ctx, i, r.Node)
	if err == nil && target.Why != nil {
		err = target.Why
	}
	if err != nil {
		return Plan{}, err
	}
	id := i.Intent.ID // the name may belong to another instance later
	var plan Plan
	_, err = o.MutateGroup(ctx, by, i.Intent.Group, func(s *view.Snapshot) (txn.Change, error) {
		i, ok := s.Instances.Get(id)
		if !ok {
			return txn.Change{}, noInstance(r.Ref)
		}
		err := movable(s, i)
		if err == nil {
			err = receives(s, i, target.Node)
		}
		if err != nil {
			return txn.Change{}, err
		}
		plan = o.plan(s, i, target.Node, by, r)
		if r.DryRun {
			return txn.Change{}, nil
		}
		return begin(s, i, plan.Move), nil
	})
	if err != nil || r.DryRun {
		return plan, err
	}
	if m, _ := o.Snapshot().Move(id); m != nil && m.ID == plan.Move.ID {
		plan.Move = m
	}
	return plan, nil
}

// plan returns the record of a move with its steps.
func (o *Moves) plan(s *view.Snapshot, i *fleet.Instance, target fleet.NodeID, by txn.Actor, r Request) Plan {
	from, _ := s.Nodes.Get(i.Node())
	to, _ := s.Nodes.Get(target)
	at := o.Now()
	m := move.Move{
		ID: strings.ToLower(ulid.Make().String()), Instance: i.Intent.ID, Name: i.Intent.Name, Group: i.Intent.Group,
		Source: from.ID, SourceUUID: from.DataUUID, Target: target, TargetUUID: to.DataUUID, Generation: i.LastGeneration(),
		DeadlineSeconds: r.DeadlineSeconds, Message: r.Message, By: by.User, At: at, Step: move.Stopping, StepAt: at,
	}
	p := Plan{Move: &m, Bytes: size(s, i)}
	runs := i.Intent.Desired == fleet.DesiredRunning || i.Intent.RestartPending
	if i.State().Running() {
		p.Players = s.Occupied(i)
	}
	switch {
	case !runs:
		p.Steps = append(p.Steps, "it is stopped, and stays so")
	case i.State() == fleet.Online && r.DeadlineSeconds > 0:
		p.Steps = append(p.Steps, fmt.Sprintf("its %d players are sent to other instances, and it stops when it is empty, at the latest after %d s", p.Players, r.DeadlineSeconds))
	default:
		p.Steps = append(p.Steps, "it stops at once")
	}
	p.Steps = append(p.Steps, fmt.Sprintf("node %s copies its directory from node %s and verifies it", m.Target, m.Source))
	if runs {
		p.Steps = append(p.Steps, fmt.Sprintf("it starts on node %s", m.Target))
	} else {
		p.Steps = append(p.Steps, fmt.Sprintf("it starts on node %s when a user starts it", m.Target))
	}
	p.Steps = append(p.Steps, fmt.Sprintf("node %s sets its copy aside and removes it after %v", m.Source, move.KeepFor))
	return p
}

// begin returns the change that begins a move.
func begin(s *view.Snapshot, i *fleet.Instance, m *move.Move) txn.Change {
	id := i.Intent.ID
	var wishes int64
	if d, ok := s.NodesDesired.Get(m.Target); ok {
		wishes = d.ModRev
	}
	return txn.Change{
		Guards: []store.Guard{
			store.Unchanged(keys.Intent(id), i.Intent.ModRev), store.Unchanged(keys.NodeDesired(m.Target), wishes),
			store.Exists(keys.Node(m.Target)), store.Exists(keys.Group(i.Intent.Group)),
		},
		Writes: []store.Write{store.Replace(keys.Move(id), *m, revOf(s, id))},
		Audit:  entry("instance.move", i, nil, m),
	}
}

// movable returns Conflict when an instance cannot be moved now.
func movable(s *view.Snapshot, i *fleet.Instance) error {
	no := func(format string, args ...any) error {
		return errs.New(errs.Conflict, "instance %s "+format, append([]any{i.Intent.Name}, args...)...)
	}
	g, ok := s.Groups.Get(i.Intent.Group)
	m, _ := s.Move(i.Intent.ID)
	switch {
	case !ok || g.Deleting:
		return no("cannot move: its group is being deleted")
	case !g.Spec.Static.Enabled:
		return no("is not static: it has no data to move. Cordon its node and restart it to run it elsewhere")
	case m.Active():
		return no("is moving to node %s already: wait, or cancel that move", m.Target)
	case i.Intent.Frozen:
		return no("is frozen: unfreeze it first")
	case i.Placement == nil:
		return no("has never been on a node: it has no data to move")
	case i.Moved() != nil:
		return no("was moved to node %s and has not run there yet: start it first", i.Moved().Node)
	case i.Lost() || i.Stranded():
		return no("is on the lost node %s: start the node's agent first", i.Node())
	}
	if stored, ok := s.Plans.Get(i.Placement.Plan); ok && !stored.Plan.Static {
		return no("was started before its group became static: restart it first")
	}
	from, ok := s.Nodes.Get(i.Node())
	if !ok || !i.Placement.On(from) {
		return no("has its data on node %s, which was deleted", i.Node())
	}
	if _, alive := s.NodeSessions.Get(i.Node()); !alive {
		return no("cannot move: its node %s is not connected", i.Node())
	}
	return nil
}

// receives returns an error when a node cannot be the target of an instance's move now.
func receives(s *view.Snapshot, i *fleet.Instance, node fleet.NodeID) error {
	if _, ok := s.Nodes.Get(node); !ok {
		return errs.Field("node", "%s does not exist: name a node that orrery get nodes lists", txn.Clip(string(node)))
	}
	if node == i.Node() {
		return errs.Field("node", "%s has instance %s already: name another one", node, i.Intent.Name)
	}
	d, _ := s.NodesDesired.Get(node)
	_, alive := s.NodeSessions.Get(node)
	switch {
	case d != nil && d.Deleted:
		return errs.New(errs.Conflict, "node %s is being deleted", node)
	case d.Draining() != nil:
		return errs.New(errs.Conflict, "node %s is being drained", node)
	case d != nil && d.Cordoned:
		return errs.New(errs.Conflict, "node %s is cordoned: uncordon it, or name another node", node)
	case !alive:
		return errs.New(errs.Conflict, "node %s is not connected: start its agent, or name another node", node)
	}
	if r, ok := s.Reports.Get(node); ok && r.DiskMiB > 0 {
		if needs := size(s, i) >> 20; needs > int64(r.DiskFreeMiB) {
			return errs.New(errs.Conflict, "node %s has %d MiB free on its disk, and the data of instance %s has %d MiB", node, r.DiskFreeMiB, i.Intent.Name, needs)
		}
	}
	return nil
}

// size returns the last measured size of an instance's directory in bytes, 0 if unknown.
func size(s *view.Snapshot, i *fleet.Instance) int64 {
	if r, ok := s.Reports.Get(i.Node()); ok {
		return r.StaticBytes[string(i.Intent.Group)+"/"+i.Intent.Name]
	}
	return 0
}

// Target is where an instance moves.
type Target struct {
	Node fleet.NodeID
	// Why is set instead if no node takes the instance.
	Why error
	// revision is that of the scheduler's snapshot.
	revision int64
}

// choose asks the scheduler for the target. node is the wanted one, or empty.
func (o *Moves) choose(ctx context.Context, i *fleet.Instance, node fleet.NodeID) (Target, error) {
	got, _, err := o.simulate(ctx, client.Question{Move: &client.MoveQuestion{Instance: i.Intent.ID, Node: node}})
	if err != nil {
		return Target{}, err
	}
	if len(got.Instances) == 1 && got.Instances[0].Node != "" {
		return Target{Node: got.Instances[0].Node, revision: got.Revision}, nil
	}
	why := "the scheduler found no node"
	if len(got.Unfit) > 0 {
		why = got.Unfit[0].Message
	}
	if node != "" {
		return Target{Why: errs.New(errs.Conflict, "node %s cannot take instance %s: %s", node, i.Intent.Name, why)}, nil
	}
	return Target{Why: nowhere(i.Intent.Name, why), revision: got.Revision}, nil
}

func nowhere(instance, why string) error {
	return errs.New(errs.Conflict, "no other node can take instance %s: %s", instance, why)
}

// CancelMove cancels the move of an instance. It starts again where it was. It changes nothing if the
// move was cancelled already. NotFound when the instance or its move does not exist, Conflict when
// the move is over or the instance was placed on the target.
func (o *Moves) CancelMove(ctx context.Context, by txn.Actor, ref string, dryRun bool) (m *move.Move, err error) {
	i, err := find(o.Snapshot(), ref)
	if err != nil {
		return nil, err
	}
	id := i.Intent.ID
	_, err = o.MutateGroup(ctx, by, i.Intent.Group, func(s *view.Snapshot) (txn.Change, error) {
		i, ok := s.Instances.Get(id)
		if !ok {
			return txn.Change{}, noInstance(ref)
		}
		if m, _ = s.Move(id); m == nil {
			return txn.Change{}, errs.New(errs.NotFound, "instance %s was not moved", i.Intent.Name)
		}
		switch {
		case !m.Active():
			return txn.Change{}, errs.New(errs.Conflict, "the move of instance %s is over: it is %s", i.Intent.Name, m.Step)
		case m.Placed(i):
			return txn.Change{}, errs.New(errs.Conflict, "instance %s starts on node %s already: move it back when it is ONLINE", i.Intent.Name, m.Target)
		case m.CancelBy != "" || dryRun:
			return txn.Change{}, nil
		}
		next := *m
		next.CancelBy = by.User
		return txn.Change{
			Guards: []store.Guard{store.Unchanged(keys.Intent(id), i.Intent.ModRev)},
			Writes: []store.Write{store.Replace(keys.Move(id), next, m.ModRev)},
			Audit:  entry("instance.move.cancel", i, m, &next),
		}, nil
	})
	if err != nil {
		return nil, err
	}
	if now, _ := o.Snapshot().Move(id); now != nil {
		m = now
	}
	return m, nil
}

func revOf(s *view.Snapshot, id fleet.InstanceID) int64 {
	if m, _ := s.Move(id); m != nil {
		return m.ModRev
	}
	return 0
}

func find(s *view.Snapshot, ref string) (*fleet.Instance, error) {
	i, ok := s.Find(ref)
	if !ok {
		return nil, noInstance(ref)
	}
	return i, nil
}

func noInstance(ref string) error {
	return errs.New(errs.NotFound, "there is no instance %s", txn.Clip(ref))
}

// entry returns the audit entry of a move.
func entry(action string, i *fleet.Instance, before, after *move.Move) txn.Entry {
	e := txn.Entry{Action: action, Resource: "instance", ID: string(i.Intent.ID), Details: i.Intent.Name, After: record(after)}
	if before != nil {
		e.Before = record(before)
	}
	return e
}

// record is what the audit keeps of a move.
func record(m *move.Move) any {
	out := map[string]any{"id": m.ID, "from": m.Source, "to": m.Target, "step": m.Step, "deadlineSeconds": m.DeadlineSeconds, "message": m.Message}
	if m.CancelBy != "" {
		out["cancelBy"] = m.CancelBy
	}
	return out
}
