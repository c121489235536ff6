package plan

import (
	"time"

	"github.com/orreryhq/orrery/enforcer/internal/sleep"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
)

// sleep puts empty instances to sleep and wakes those that are needed.
func (p *pass) sleep() {
	in := sleep.Input{Spec: p.spec(), Closed: p.maintained() || p.in.Unmet, Deploying: p.deploying()}
	for _, i := range p.all {
		switch {
		case !p.living(i) || p.busy[i.Intent.ID]:
		case i.State() == fleet.Online:
			in.Instances = append(in.Instances, sleep.Instance{Instance: i, EmptySince: p.sleepySince(i), Load: p.loadOf(i)})
		case i.State() == fleet.Sleeping:
			if !i.Retiring() && i.Intent.Desired == fleet.DesiredRunning {
				in.Instances = append(in.Instances, sleep.Instance{Instance: i})
			}
		default:
			in.Coming++
		}
	}
	steps, wake := sleep.Decide(in, p.now)
	p.wakeAt(wake)
	for _, s := range steps {
		if s.Wake {
			p.act(Action{Kind: Wake, Instance: s.Instance, Origin: s.Instance.Intent.Origin, Reason: fleet.ReasonWoken, Message: s.Message, By: s.By})
			continue
		}
		p.act(Action{Kind: Sleep, Instance: s.Instance, Reason: fleet.ReasonAsleep, Message: s.Message, Order: fleet.OrderSleep, WhileEmpty: true})
	}
}

// deploying reports whether a deployment of the group is active.
func (p *pass) deploying() bool {
	n := len(p.in.Deployments)
	return n > 0 && p.in.Deployments[n-1].Active() && p.in.Deployments[n-1].State() != deployment.Completed
}

// sleepySince returns since when an ONLINE instance has had no players. It returns zero if the
// instance must stay awake.
func (p *pass) sleepySince(i *fleet.Instance) time.Time {
	switch {
	case i.Intent.Frozen || i.Intent.Desired != fleet.DesiredRunning || i.Intent.Sleep != nil || !i.TakesPlayers():
	case p.paired[i.Intent.ID] || p.leaves[i.Intent.ID] || p.in.Eviction(i.Intent.ID) != nil:
	case p.in.Players(i) > 0 || !p.in.Figures(i).PlayersKnown:
	default:
		return latest(p.in.EmptySince(i), i.Status.ChangedAt)
	}
	return time.Time{}
}

// ready reports whether an instance serves players, at once or as soon as it is woken.
func ready(i *fleet.Instance) bool { return i.State() == fleet.Online || i.State() == fleet.Sleeping }
