package nodeops

import (
	"cmp"
	"context"
	"slices"

	"github.com/orreryhq/orrery/apigateway/internal/ops/instanceops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/drain"
	"github.com/orreryhq/orrery/libs/fleet/label"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/libs/store/view"
)

// BulkVerb is what a bulk request does to each node.
type BulkVerb string

// The verbs.
const (
	BulkCordon   BulkVerb = "cordon"
	BulkUncordon BulkVerb = "uncordon"
	BulkDrain    BulkVerb = "drain"
	BulkUndrain  BulkVerb = "undrain"
)

// BulkSelector selects nodes. A node must match all fields that are set.
type BulkSelector struct {
	// IDs: the request concerns all of them, also those that the action does not change. Without IDs it
	// concerns only those that the action would change.
	IDs []fleet.NodeID
	// Labels is an expression over the labels of the node.
	Labels string
	// All selects every node. No other field may be set.
	All bool
}

// Bulk asks for the same action on several nodes. Its bounds are those of instanceops.Bulk.
type Bulk struct {
	Verb     BulkVerb
	Selector BulkSelector
	// Drain has the settings of BulkDrain. Its other fields are not used.
	Drain    NodeDrain
	Parallel int
	// DryRun computes the results and changes nothing.
	DryRun bool
}

// BulkResult is what happened to one node, or would happen.
type BulkResult struct {
	Node fleet.NodeID
	// Changed is false if nothing had to change, or if Err is set.
	Changed bool
	// Steps are what BulkDrain does to the instances on the node, and Back those that BulkUndrain
	// concerns.
	Steps []drain.Step
	Back  Back
	Err   error
}

// BulkNodes carries out an action on each selected node, and audits each as the request for one node does.
// One that fails does not stop the others. Invalid names every wrong field.
func (o *Nodes) BulkNodes(ctx context.Context, by txn.Actor, b Bulk) ([]BulkResult, error) {
	if err := b.validate(); err != nil {
		return nil, err
	}
	out, err := b.choose(o.Snapshot())
	if err != nil {
		return nil, err
	}
	if b.DryRun { // each drain is computed as if the ones before it had begun
		b.Drain.With, b.Parallel = map[fleet.NodeID]fleet.NodeDrain{}, 1
		for _, r := range out {
			b.Drain.Also = append(b.Drain.Also, r.Node)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, instanceops.BulkTime)
	defer cancel()
	whole := txn.Entry{Action: "node." + string(b.Verb), Resource: "node", Details: txn.Count(len(out), "node")}
	failed, err := o.Each(ctx, whole, len(out), b.Parallel, func(ctx context.Context, n int) error { return o.act(ctx, by, b, &out[n]) })
	for n := range failed {
		if out[n].Err = failed[n]; failed[n] != nil {
			out[n].Changed = false
		}
	}
	return out, err
}

// act carries out the action on one node.
func (o *Nodes) act(ctx context.Context, by txn.Actor, b Bulk, r *BulkResult) (err error) {
	switch b.Verb {
	case BulkCordon, BulkUncordon:
		r.Changed, _, err = o.setCordon(ctx, by, r.Node, b.Verb == BulkCordon, b.DryRun)
	case BulkUndrain:
		r.Back, _, err = o.Undrain(ctx, by, r.Node, b.DryRun)
		r.Changed = r.Back.Changed
	case BulkDrain:
		asked := b.Drain
		asked.Node, asked.DryRun = r.Node, b.DryRun
		var done Drained
		done, err = o.Drain(ctx, by, asked)
		r.Changed, r.Steps = done.Changed, done.Steps
		if b.DryRun && err == nil {
			b.Drain.With[r.Node] = done.Drain
		}
	}
	return err
}

func (b Bulk) validate() error {
	var p validate.Problems
	p.Check(validate.OneOf(b.Verb, BulkCordon, BulkUncordon, BulkDrain, BulkUndrain),
		"action", "must be cordon, uncordon, drain or undrain, not %q", validate.Clip(string(b.Verb)))
	p.Check(b.Parallel >= 1 && b.Parallel <= instanceops.MaxBulkParallel, "parallel", "must be between 1 and %d, is %d", instanceops.MaxBulkParallel, b.Parallel)
	sel := b.Selector
	some := len(sel.IDs) > 0 || sel.Labels != ""
	p.Check(some || sel.All, "ids", "is missing: select nodes by ids or labels, or set all to true")
	p.Check(!some || !sel.All, "all", "must not be set together with ids or labels: remove one of them")
	p.Check(len(sel.IDs) <= instanceops.MaxBulk, "ids", "must have at most %d entries, has %d", instanceops.MaxBulk, len(sel.IDs))
	p.Check(len(slices.Compact(slices.Sorted(slices.Values(sel.IDs)))) == len(sel.IDs), "ids", "names a node twice")
	if sel.Labels != "" {
		_, err := label.ParseLabelExpr(sel.Labels)
		p.Check(err == nil, "labels", "%s", errs.MessageOf(err))
	}
	if b.Verb == BulkDrain {
		if err := b.Drain.validate(); err != nil {
			p.AddAll([]error{err})
		}
	}
	return txn.JoinProblems(p.List)
}

// choose returns the nodes that the request concerns: those of IDs in that order, otherwise those that
// the action would change, by name. Invalid when it selects too many.
func (b Bulk) choose(s *view.Snapshot) (out []BulkResult, err error) {
	expr, _ := label.ParseLabelExpr(b.Selector.Labels) // validate has checked it
	matches := func(n *fleet.Node, d *fleet.NodeDesired) bool {
		return b.Selector.Labels == "" || expr.Matches(n.LabelsUnder(d))
	}
	if len(b.Selector.IDs) > 0 {
		for _, id := range b.Selector.IDs {
			n, ok := s.Nodes.Get(id)
			d, _ := s.NodesDesired.Get(id)
			if !ok || matches(n, d) { // an unknown one has an error of its own
				out = append(out, BulkResult{Node: id})
			}
		}
		return out, nil
	}
	for id, n := range s.Nodes.All() {
		d, _ := s.NodesDesired.Get(id)
		if (d == nil || !d.Deleted) && matches(n, d) && b.concerns(d) {
			out = append(out, BulkResult{Node: id})
		}
	}
	if len(out) > instanceops.MaxBulk {
		return nil, errs.New(errs.Invalid, "the request selects %d nodes, at most %d are allowed: select fewer, for example by labels", len(out), instanceops.MaxBulk)
	}
	slices.SortFunc(out, func(x, y BulkResult) int { return cmp.Compare(x.Node, y.Node) })
	return out, nil
}

// concerns reports whether the action would change a node that was not named.
func (b Bulk) concerns(d *fleet.NodeDesired) bool {
	cordoned, drained := d != nil && d.Cordoned, d != nil && d.Drain != nil
	switch b.Verb {
	case BulkCordon:
		return !cordoned
	case BulkUncordon, BulkUndrain:
		return cordoned || drained
	case BulkDrain:
		have := d.Draining()
		return have == nil || !b.Drain.asks(have)
	}
	return false
}
