package instanceops

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/label"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// MaxBulk bounds the objects that one bulk request concerns.
	MaxBulk = 1000
	// BulkParallel is how many objects a bulk request acts on at once by default, MaxBulkParallel at most.
	BulkParallel, MaxBulkParallel = 8, 64
	// BulkTime bounds a bulk request. The objects that were not begun by then fail.
	BulkTime = time.Minute
)

// BulkVerb is what a bulk request does to each instance.
type BulkVerb string

// The verbs.
const (
	BulkStop    BulkVerb = "stop"
	BulkKill    BulkVerb = "kill"
	BulkStart   BulkVerb = "start"
	BulkRestart BulkVerb = "restart"
	BulkCommand BulkVerb = "command"
	BulkDelete  BulkVerb = "delete"
)

// BulkSelector selects instances. An instance must match all fields that are set.
type BulkSelector struct {
	// IDs are ids or names. The request concerns all of them, also those that the action does not change.
	// Without IDs it concerns only those that the action would change.
	IDs    []string
	Groups []fleet.GroupName
	Node   fleet.NodeID
	// Labels is an expression over the labels of the group.
	Labels string
	// All selects every instance. No other field may be set.
	All bool
}

// Bulk asks for the same action on several instances.
type Bulk struct {
	Verb     BulkVerb
	Selector BulkSelector
	// Command is the line that BulkCommand sends. It is empty for others.
	Command string
	// Parallel is 1 to MaxBulkParallel.
	Parallel int
	// DryRun computes the results and changes nothing.
	DryRun bool
	// Sees is false for groups that are treated as if they did not exist. Nil allows all.
	Sees func(fleet.GroupName) bool
}

// BulkResult is what happened to one instance, or would happen.
type BulkResult struct {
	// Ref is the id or name in the request, else the name.
	Ref string
	// Instance is nil if there is none. It is the instance as it was before the action.
	Instance *fleet.Instance
	// Changed is false if nothing had to change, or if Err is set.
	Changed bool
	// Waiting names the disconnected node that must return before the change takes effect. A dry run does
	// not set it.
	Waiting fleet.NodeID
	Err     error
}

// BulkInstances carries out an action on each selected instance, and audits each as the request for one instance
// does. One that fails does not stop the others. Invalid names every wrong field, and also says when
// the request selects too many.
func (o *Instances) BulkInstances(ctx context.Context, by txn.Actor, b Bulk) ([]BulkResult, error) {
	if err := b.validate(); err != nil {
		return nil, err
	}
	s := o.Snapshot()
	out, err := b.choose(s)
	if err != nil {
		return nil, err
	}
	if b.DryRun {
		o.rehearse(s, by, b, out)
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, BulkTime)
	defer cancel()
	whole := txn.Entry{Action: "instance." + string(b.Verb), Resource: "instance", Details: txn.Count(len(out), "instance")}
	failed, err := o.Each(ctx, whole, len(out), b.Parallel, func(ctx context.Context, n int) error {
		r := &out[n]
		if r.Instance == nil {
			return NoInstance(r.Ref)
		}
		done, err := o.act(ctx, by, b, string(r.Instance.Intent.ID))
		r.Changed, r.Waiting = err == nil && done.Changed, done.Waiting
		return err
	})
	for n := range failed {
		out[n].Err = failed[n]
	}
	return out, err
}

// act carries out the action on one instance.
func (o *Instances) act(ctx context.Context, by txn.Actor, b Bulk, id string) (Outcome, error) {
	switch b.Verb {
	case BulkCommand:
		_, err := o.Command(ctx, by, id, b.Command, "")
		return Outcome{Changed: true}, err
	case BulkStop, BulkKill, BulkStart, BulkRestart, BulkDelete:
	}
	return o.onInstance(ctx, by, id, o.deciding(b.Verb, by, 0))
}

// deciding returns the decision of a verb other than BulkCommand. before is how many instances of the
// group are assumed to start first.
func (o *Instances) deciding(v BulkVerb, by txn.Actor, before int) decision {
	switch v {
	case BulkStart:
		return o.starting(by, before)
	case BulkRestart:
		return o.restarting(by, before)
	case BulkDelete:
		return removing(0)
	case BulkStop, BulkKill, BulkCommand:
	}
	return o.stopping(by, v == BulkKill)
}

// rehearse computes what the request would do to each instance, one after the other.
func (o *Instances) rehearse(s *view.Snapshot, by txn.Actor, b Bulk, all []BulkResult) {
	before := map[fleet.GroupName]int{}
	for n := range all {
		r := &all[n]
		switch {
		case r.Instance == nil:
			r.Err = NoInstance(r.Ref)
		case b.Verb == BulkCommand:
			r.Err = takesLine(r.Instance, b.Command)
			r.Changed = r.Err == nil
		default:
			group := r.Instance.Intent.Group
			c, err := o.deciding(b.Verb, by, before[group])(s, r.Instance)
			r.Changed, r.Err = err == nil && c != nil, err
			if r.Changed && r.Instance.Terminal() && b.Verb != BulkDelete {
				before[group]++
			}
		}
	}
}

func (b Bulk) validate() error {
	var p validate.Problems
	p.Check(validate.OneOf(b.Verb, BulkStop, BulkKill, BulkStart, BulkRestart, BulkCommand, BulkDelete),
		"action", "must be stop, kill, start, restart, command or delete, not %q", validate.Clip(string(b.Verb)))
	if b.Verb == BulkCommand {
		p.Check(b.Command != "", "command", "is missing: give the line to write to the console")
		if err := line(b.Command); err != nil {
			p.AddAll([]error{err})
		}
	} else {
		p.Check(b.Command == "", "command", "has a meaning only with the action command: remove it")
	}
	p.Check(b.Parallel >= 1 && b.Parallel <= MaxBulkParallel, "parallel", "must be between 1 and %d, is %d", MaxBulkParallel, b.Parallel)
	b.Selector.validate(&p)
	return txn.JoinProblems(p.List)
}

func (sel BulkSelector) validate(p *validate.Problems) {
	some := len(sel.IDs) > 0 || len(sel.Groups) > 0 || sel.Node != "" || sel.Labels != ""
	p.Check(some || sel.All, "ids", "is missing: select instances by ids, groups, node or labels, or set all to true")
	p.Check(!some || !sel.All, "all", "must not be set together with ids, groups, node or labels: remove one of them")
	p.Check(len(sel.IDs) <= MaxBulk, "ids", "must have at most %d entries, has %d", MaxBulk, len(sel.IDs))
	p.Check(len(sel.Groups) <= MaxBulk, "groups", "must have at most %d entries, has %d", MaxBulk, len(sel.Groups))
	if sel.Labels != "" {
		_, err := label.ParseLabelExpr(sel.Labels)
		p.Check(err == nil, "labels", "%s", errs.MessageOf(err))
	}
}

// choose returns the instances that the request concerns: those of IDs in that order, otherwise those
// that the action would change, by group and number. Invalid when it names a group or a node that does
// not exist, or an instance twice, or selects too many.
func (b Bulk) choose(s *view.Snapshot) (out []BulkResult, err error) {
	sel := b.Selector
	for n, g := range sel.Groups {
		if _, ok := s.Groups.Get(g); !ok || !b.sees(g) {
			return nil, errs.Field("groups", "names a group that does not exist at position %d: %s", n, txn.Clip(string(g)))
		}
	}
	if _, ok := s.Nodes.Get(sel.Node); sel.Node != "" && !ok {
		return nil, errs.Field("node", "names a node that does not exist: %s", txn.Clip(string(sel.Node)))
	}
	matches := sel.matcher(s)
	if len(sel.IDs) > 0 {
		seen := map[string]bool{}
		for n, ref := range sel.IDs {
			i, _ := s.Find(ref)
			if i != nil && !b.sees(i.Intent.Group) {
				i = nil
			}
			key := ref
			if i != nil {
				key = string(i.Intent.ID)
			}
			if seen[key] {
				return nil, errs.Field("ids", "names an instance twice, again at position %d: %s", n, txn.Clip(ref))
			}
			seen[key] = true
			if i == nil || matches(i) {
				out = append(out, BulkResult{Ref: ref, Instance: i})
			}
		}
		return out, nil
	}
	for _, i := range s.Instances.All() {
		if b.sees(i.Intent.Group) && matches(i) && b.Verb.concerns(s, i) {
			out = append(out, BulkResult{Ref: i.Intent.Name, Instance: i})
		}
	}
	if len(out) > MaxBulk {
		return nil, errs.New(errs.Invalid, "the request selects %d instances, at most %d are allowed: select fewer, for example by group", len(out), MaxBulk)
	}
	slices.SortFunc(out, func(x, y BulkResult) int {
		a, b := &x.Instance.Intent, &y.Instance.Intent
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Ordinal, b.Ordinal), cmp.Compare(a.ID, b.ID))
	})
	return out, nil
}

func (b Bulk) sees(g fleet.GroupName) bool { return b.Sees == nil || b.Sees(g) }

// matcher returns whether an instance matches all fields other than IDs.
func (sel BulkSelector) matcher(s *view.Snapshot) func(*fleet.Instance) bool {
	expr, _ := label.ParseLabelExpr(sel.Labels) // validate has checked it
	labelled := map[fleet.GroupName]bool{}
	return func(i *fleet.Instance) bool {
		name := i.Intent.Group
		if len(sel.Groups) > 0 && !slices.Contains(sel.Groups, name) || sel.Node != "" && i.Node() != sel.Node {
			return false
		}
		if sel.Labels == "" {
			return true
		}
		fits, known := labelled[name]
		if g, ok := s.Groups.Get(name); !known && ok {
			fits = expr.Matches(s.Whole(g).Spec.Labels)
			labelled[name] = fits
		}
		return fits
	}
}

// concerns reports whether a verb applies to an instance that was not named. A start applies to
// instances that have ended and were not replaced, a restart only to
// living ones that neither sleep nor move.
func (v BulkVerb) concerns(s *view.Snapshot, i *fleet.Instance) bool {
	switch v {
	case BulkStop, BulkKill:
		return stoppable(s, i, v == BulkKill)
	case BulkStart:
		g, ok := s.Groups.Get(i.Intent.Group)
		return startable(i) && moving(s, i) == nil && (!ok || unlisted(g, i) == nil)
	case BulkRestart:
		return !i.Terminal() && i.Intent.Desired == fleet.DesiredRunning && !i.Intent.RestartPending && i.State() != fleet.Sleeping && moving(s, i) == nil
	case BulkCommand:
		return i.State().Running()
	case BulkDelete:
		return finished(i) == nil
	}
	return false
}

// Reason is the reason that a verb records, empty for those that record none.
func (v BulkVerb) Reason() fleet.Reason {
	switch v {
	case BulkStop, BulkKill:
		return fleet.ReasonStopRequested
	case BulkStart:
		return fleet.ReasonRequested
	case BulkRestart:
		return fleet.ReasonRestart
	case BulkCommand, BulkDelete:
	}
	return ""
}
