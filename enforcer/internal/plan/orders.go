package plan

import (
	"cmp"
	"fmt"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// orders writes the orders that intents require and nodes do not have yet. It orders a kill
// when a deadline has passed. A stray instance is only ordered to stop, and only when its
// intent says so.
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
		case i.Intent.Sleep != nil && i.Placement.Generation == i.Intent.Generation && !i.Asleep():
			p.orderSleep(i, have)
		case p.outlived(i) && have == nil:
			message := "its node returned after a newer generation was requested"
			p.act(Action{Kind: Order, Instance: i, Order: fleet.OrderStop, Reason: fleet.ReasonNodeReturned, Message: message})
		}
	}
}

// outlived reports whether an old generation still runs on a node that was lost and is
// back.
func (p *pass) outlived(i *fleet.Instance) bool {
	return i.Placement.Generation < i.Intent.Generation && !i.Stranded() && !i.Asleep() && p.in.Session(i.Placement.Node) != nil
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

// orderSleep orders the sleep that an intent asks for, such as after a user wrote it.
func (p *pass) orderSleep(i *fleet.Instance, have *fleet.Order) {
	if have != nil {
		return
	}
	s := i.Intent.Sleep
	p.act(Action{Kind: Order, Instance: i, Order: fleet.OrderSleep, By: s.By, Reason: s.Reason, Message: cmp.Or(s.Message, s.Reason.Text())})
}

// standing returns the current order for the generation on the node, or nil.
func standing(i *fleet.Instance) *fleet.Order {
	node, generation := i.Held()
	if i.Order == nil || i.Order.Node != node || i.Order.Generation < generation {
		return nil
	}
	return i.Order
}

// overdue returns the kill order when the agent, although its session is alive, missed a
// deadline. Otherwise it requests a pass at the deadline. The time counts from the latest
// known event, because a host's clock may be behind.
func (p *pass) overdue(i *fleet.Instance, order *fleet.Order) (Action, bool) {
	session := p.in.Session(i.Placement.Node)
	if session == nil || i.Asleep() && (order == nil || order.Action == fleet.OrderSleep) {
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

// deadline returns since when the agent must act in the current state, and for how long it
// may take. A bound of 0 means no deadline.
func (p *pass) deadline(i *fleet.Instance, order *fleet.Order) (since time.Time, bound time.Duration) {
	plan := p.in.Plan(i.Placement.Plan)
	var changed time.Time
	if i.Status != nil && i.Status.Generation >= i.Placement.Generation {
		changed = i.Status.ChangedAt
	}
	if order != nil { // after a stop order it must end, whatever the state
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
		if i.Status.PID == 0 && i.Status.Reason != fleet.ReasonProcessStarted { // no run has begun: the agent backs off or waits for a port
			limit = max(limit, fleet.PortPatience)
		}
		return changed, limit + p.in.Limits.StartSlack
	case fleet.Unplaced, fleet.Online, fleet.Stopping, fleet.Stopped, fleet.Crashed, fleet.Failed, fleet.Sleeping, fleet.Offline:
	}
	return time.Time{}, 0
}
