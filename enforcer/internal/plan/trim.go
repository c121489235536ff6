package plan

import (
	"fmt"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
)

// target returns how many living instances the enforcer starts.
func (p *pass) target() int { return scaling.Target(p.spec(), p.decided) }

// trim stops own instances above the minimum and then any instances above the maximum.
func (p *pass) trim() {
	if p.spec().Scaling.Mode != fleet.ScalingManual {
		p.trimOwn()
	}
	limit := p.spec().Scaling.Max
	if limit <= 0 {
		return
	}
	surplus := p.countLiving() - limit
	for _, paired := range []bool{false, true} { // pairs last, and then both of a pair
		for _, i := range slices.Backward(p.all) {
			if surplus <= 0 {
				return
			}
			if !p.living(i) || p.busy[i.Intent.ID] || p.paired[i.Intent.ID] != paired || i.Intent.Frozen {
				continue
			}
			p.stop(i, fleet.ReasonAboveMaximum, fmt.Sprintf("the group allows %d instances", limit))
			if !p.duplicates[i.Intent.ID] {
				surplus--
			}
		}
	}
}

// trimOwn stops the youngest own instances above the target that have no players and that neither the
// load nor the policies of the group need. A report of another load triggers another pass.
func (p *pass) trimOwn() {
	excess := -p.target()
	for _, i := range p.all {
		if p.living(i) && p.own(i) && !p.duplicates[i.Intent.ID] {
			excess++
		}
	}
	if excess > 0 {
		excess -= max(0, p.asked()-p.target())
	}
	if excess <= 0 {
		return
	}
	needed := p.loadNeeds()
	for _, i := range slices.Backward(p.all) {
		if excess <= 0 {
			return
		}
		if p.living(i) && p.own(i) && !p.busy[i.Intent.ID] && p.in.Players(i) == 0 && !p.paired[i.Intent.ID] && !i.Intent.Frozen && !needed(i) {
			p.stopEmpty(i, fleet.ReasonScaledDown, fmt.Sprintf("the group needs %d instances", p.target()))
			excess--
		}
	}
}

// stop sets an intent to stopped, and adds an order if the instance may be running.
func (p *pass) stop(i *fleet.Instance, why fleet.Reason, message string) {
	p.act(p.stopping(i, why, message))
}

// stopEmpty is stop for an instance without players. The stop is not committed if that changes.
func (p *pass) stopEmpty(i *fleet.Instance, why fleet.Reason, message string) {
	a := p.stopping(i, why, message)
	a.WhileEmpty = true
	p.act(a)
}

func (p *pass) stopping(i *fleet.Instance, why fleet.Reason, message string) Action {
	a := Action{Kind: Stop, Instance: i, Reason: why, Message: message}
	if i.HoldsNode() || i.Stray() {
		a.Order = fleet.OrderStop
		if o := standing(i); o != nil && o.Action == fleet.OrderKill || i.Intent.Stop != nil && i.Intent.Stop.Force {
			a.Order = fleet.OrderKill
		}
	}
	p.stopped[i.Intent.ID] = true
	return a
}
