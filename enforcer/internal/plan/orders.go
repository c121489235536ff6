package plan

import (
	"cmp"
	"fmt"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// orders tells nodes what the intents of their instances say, as long as they
// have not been told, and orders a kill where a deadline passed. A stray one is
// ordered to stop when somebody wants that, and nothing else.
func (p *pass) orders() {
	for _, i := range p.all {
		stray := i.Stray()
		if p.busy[i.Intent.ID] || !stray && !i.HoldsNode() {
			continue
		}
		have := standing(i)
		if have != nil && have.Action == fleet.OrderKill {
			continue
		}
		if !stray {
			if a, due := p.overdue(i, have); due {
				p.act(a)
				continue
			}
		}
		switch {
		case i.Intent.Desired == fleet.DesiredStopped:
			p.orderStop(i, have)
		case stray:
		case p.outlived(i) && have == nil:
			message := "its node came back after a newer generation had been asked for"
			p.act(Action{Kind: Order, Instance: i, Order: fleet.OrderStop, Reason: fleet.ReasonNodeReturned, Message: message})
		}
	}
}

// outlived reports whether an older generation than the wanted one runs on a node
// that was lost and is back.
func (p *pass) outlived(i *fleet.Instance) bool {
	return i.Placement.Generation < i.Intent.Generation && !i.Stranded() && p.in.session(i.Placement.Node) != nil
}

func (p *pass) orderStop(i *fleet.Instance, have *fleet.Order) {
	a := Action{Kind: Order, Instance: i, Order: fleet.OrderStop, Reason: fleet.ReasonStopRequested}
	if s := i.Intent.Stop; s != nil {
		a.By, a.Reason, a.Message = s.By, cmp.Or(s.Reason, a.Reason), s.Message
		if s.Force {
			a.Order = fleet.OrderKill
		}
	}
	if have != nil && have.Action == a.Order {
		return
	}
	a.Message = cmp.Or(a.Message, a.Reason.Text())
	p.act(a)
}

// standing is the order that the generation on the node is under; nil when there is none.
func standing(i *fleet.Instance) *fleet.Order {
	node, generation := i.Held()
	if i.Order == nil || i.Order.Node != node || i.Order.Generation < generation {
		return nil
	}
	return i.Order
}

// overdue reports whether the agent let a deadline pass although its session
// lives, and the kill that follows. What is not due yet wakes the next pass. The
// time counts from the latest thing that is known, since a host's clock may be behind.
func (p *pass) overdue(i *fleet.Instance, order *fleet.Order) (Action, bool) {
	session := p.in.session(i.Placement.Node)
	if session == nil {
		return Action{}, false
	}
	since, bound := p.deadline(i, order)
	if bound <= 0 {
		return Action{}, false
	}
	due := latest(since, session.StartedAt, i.Placement.PlacedAt).Add(bound)
	if due.After(p.now) {
		p.wakeAt(due)
		return Action{}, false
	}
	message := fmt.Sprintf("%s for more than %v", i.State(), bound)
	return Action{Kind: Order, Instance: i, Order: fleet.OrderKill, Reason: fleet.ReasonDeadlinePassed, Message: message}, true
}

// deadline is since when the instance's state waits for its agent, and how long
// it may; no bound when it does not.
func (p *pass) deadline(i *fleet.Instance, order *fleet.Order) (since time.Time, bound time.Duration) {
	plan := p.in.plan(i.Placement.Plan)
	var changed time.Time
	if i.Status != nil && i.Status.Generation >= i.Placement.Generation {
		changed = i.Status.ChangedAt
	}
	if order != nil { // ordered to stop: whatever the state, it must end
		if plan == nil {
			return time.Time{}, 0
		}
		grace := time.Duration(plan.Stop.GraceSeconds+fleet.KillAfterSeconds) * time.Second
		if i.State() != fleet.Stopping {
			changed = time.Time{}
		}
		return latest(order.At, changed), grace + p.in.Limits.StopSlack
	}
	switch i.State() {
	case fleet.Preparing:
		return changed, p.in.Limits.PrepareFor
	case fleet.Starting:
		if plan == nil || plan.StartupTimeoutSeconds <= 0 {
			return time.Time{}, 0
		}
		limit := time.Duration(plan.StartupTimeoutSeconds) * time.Second
		if i.Status.PID == 0 && i.Status.Reason != fleet.ReasonProcessStarted { // no run has begun: the agent pauses, or waits for a port
			limit = max(limit, fleet.PortPatience)
		}
		return changed, limit + p.in.Limits.StartSlack
	case fleet.Unplaced, fleet.Online, fleet.Stopping, fleet.Stopped, fleet.Crashed, fleet.Failed, fleet.Offline:
	}
	return time.Time{}, 0
}
