package check

import (
	"fmt"
	"slices"

	"github.com/orreryhq/orrery/e2e/faults/history"
	"github.com/orreryhq/orrery/e2e/faults/record"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Exits is the input of its method Check.
type Exits struct {
	// Runs are all runs. Living and Killed report whether a process lives and whether the
	// plan killed it.
	Runs           []record.Run
	Living, Killed func(pid int) bool
	Events         []history.Event
	// MayShrink reports whether a group may have surplus instances, because its count was
	// lowered or because one was on a lost node.
	MayShrink func(fleet.GroupName) bool
	// MayReplace reports whether instances of a group may be ordered to end for a reason, because the
	// group is deployed or a node drained. Nil means never.
	MayReplace func(fleet.GroupName, fleet.Reason) bool
	// Exclusive reports whether a group's instances end with their node's session.
	Exclusive func(fleet.GroupName) bool
	// MayExpire reports whether a node's session may have been about to expire at a time,
	// because something it depends on had failed shortly before.
	MayExpire func(node fleet.NodeID, at record.Time) bool
	// MayFail reports whether an instance may end or fail to start for a reason.
	MayFail func(fleet.Reason) bool
}

// why lists the reasons that orders may have in any scenario.
var why = []fleet.Reason{
	fleet.ReasonStopRequested, fleet.ReasonGroupDeleted, fleet.ReasonRequested, fleet.ReasonRestart,
}

// shrinking lists the reasons that orders may have when there are surplus instances.
var shrinking = []fleet.Reason{fleet.ReasonScaledDown, fleet.ReasonAboveMaximum}

// Check returns the runs that ended without an order, the orders without a valid reason,
// and the instances that were reported as ended while they lived.
func (x Exits) Check() ([]string, error) {
	seen, err := x.observe()
	if err != nil {
		return nil, err
	}
	out := seen.out
	for _, r := range x.Runs {
		if !x.Living(r.PID) {
			out = append(out, x.explain(r, seen)...)
		}
	}
	return append(out, seen.early(x.Runs)...), nil
}

// generation is one generation of one instance.
type generation struct {
	instance fleet.InstanceID
	number   int64
}

// observed is what the history says about ends.
type observed struct {
	out []string
	// of maps a process to its generation.
	of map[int]generation
	// ordered are the generations that were ordered to end or replaced by a newer one.
	ordered map[generation]bool
	// stopped are the instances with any such generation.
	stopped map[fleet.InstanceID]bool
	// expired are the generations that ended with the session of a node.
	expired map[generation]fleet.NodeID
	// lost are the groups that had an instance on a lost node.
	lost map[fleet.GroupName]bool
	// ended maps a generation to the report of its end, and crashed an instance to when the first
	// report of a crash was seen.
	ended   map[generation]history.Event
	crashed map[fleet.InstanceID]record.Time
}

func (x Exits) observe() (*observed, error) {
	o := &observed{
		of: map[int]generation{}, ordered: map[generation]bool{}, stopped: map[fleet.InstanceID]bool{},
		expired: map[generation]fleet.NodeID{}, lost: map[fleet.GroupName]bool{}, ended: map[generation]history.Event{}, crashed: map[fleet.InstanceID]record.Time{},
	}
	err := history.Walk(x.Events, func(_, after *history.State, txn []history.Event) error {
		for _, order := range after.Orders {
			if order.ModRev == after.Rev {
				x.order(o, after, order)
			}
		}
		for _, p := range after.Placements {
			if p.ModRev == after.Rev {
				o.ordered[generation{p.Instance, p.Generation - 1}] = true
			}
		}
		for _, s := range after.Statuses {
			if s.ModRev == after.Rev {
				x.status(o, s, txn[0])
			}
		}
		return nil
	})
	return o, err
}

func (x Exits) order(o *observed, after *history.State, order fleet.Order) {
	o.ordered[generation{order.Instance, order.Generation}] = true
	o.stopped[order.Instance] = true
	in := after.Intents[order.Instance]
	switch {
	case slices.Contains(why, order.Reason):
		return
	case x.MayReplace != nil && x.MayReplace(in.Group, order.Reason):
		return
	case slices.Contains(shrinking, order.Reason) && (x.MayShrink(in.Group) || o.lost[in.Group]):
		return
	case order.Reason == fleet.ReasonNodeReturned && o.lost[in.Group]:
		return
	}
	o.out = append(o.out, fmt.Sprintf("revision %d: unrelated order: %s of %s because %s, %s", order.ModRev, order.Action, in.Name, order.Reason, order.Message))
}

func (x Exits) status(o *observed, s fleet.Status, e history.Event) {
	g := generation{s.Instance, s.Generation}
	if s.PID != 0 {
		o.of[s.PID] = g
	}
	if s.State == fleet.Stopped && s.Reason == fleet.ReasonSessionExpiring {
		o.expired[g], o.stopped[s.Instance] = s.Node, true
		if !x.Exclusive(s.Group) {
			o.out = append(o.out, fmt.Sprintf("revision %d: %s was stopped because %s, but its group is not exclusive", s.ModRev, s.Instance, s.Reason))
		}
	}
	if s.State == fleet.Offline {
		o.lost[s.Group] = true
	}
	if s.State.Terminal() {
		o.ended[g] = e
	}
	if _, before := o.crashed[s.Instance]; s.State == fleet.Crashed && !before {
		o.crashed[s.Instance] = e.Seen
	}
	givenUp := s.Reason == fleet.ReasonNodeLost && o.lost[s.Group]
	if s.State == fleet.Failed && !givenUp && !x.MayFail(s.Reason) {
		o.out = append(o.out, fmt.Sprintf("revision %d: %s on %s FAILED because %s, %s", s.ModRev, s.Instance, s.Node, s.Reason, s.Message))
	}
}

// explain returns nothing when the end of a run has a valid cause.
func (x Exits) explain(r record.Run, o *observed) []string {
	if _, own := r.Has(record.Failing); own || x.Killed(r.PID) {
		return nil
	}
	g, known := o.of[r.PID]
	if known && o.ordered[g] || !known && o.stopped[fleet.InstanceID(r.Instance)] {
		return nil
	}
	// An agent that did not see the answer to its report of a crash restarts the server, and ends that
	// run when it reads that the instance is over.
	if seen, crashed := o.crashed[fleet.InstanceID(r.Instance)]; !known && crashed && r.Started > seen {
		return nil
	}
	node, expired := o.expired[g]
	if known && expired && x.MayExpire(node, r.Alive) {
		return nil
	}
	how := "without a word"
	if _, asked := r.Has(record.Asked); asked {
		how = "when it was asked to"
	}
	why := "nothing had been ordered"
	if known && expired {
		why = fmt.Sprintf("nothing that the session of %s needs had failed", node)
	}
	return []string{fmt.Sprintf("unrelated exit: %v ended %s, but %s", r, how, why)}
}

// early returns the runs that lived after their end had been reported.
func (o *observed) early(runs []record.Run) []string {
	var out []string
	for _, r := range runs {
		g, known := o.of[r.PID]
		if e, ended := o.ended[g]; known && ended && r.Alive > e.Seen {
			out = append(out, fmt.Sprintf("revision %d: %v was reported as ended and lived on", e.ModRev, r))
		}
	}
	return out
}
