package plan

import (
	"fmt"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
)

// target returns how many living instances the enforcer starts.
func (p *pass) target() int { return scaling.Target(p.spec(), p.decided) }

// trim stops unlisted instances, own ones above the minimum, and then any above the maximum.
func (p *pass) trim() {
	if p.spec().Scaling.Mode != fleet.ScalingManual {
		p.trimUnlisted()
		p.trimOwn()
	}
	limit := p.spec().Scaling.Max
	if limit <= 0 {
		return
	}
	surplus := p.countLiving() - limit
	for _, paired := range []bool{false, true} { // pairs last, and then both of a pair
		for _, i := range p.dispensable() {
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

// dispensable returns the instances in the order in which a surplus is stopped: unlisted ones first, and
// then the youngest.
func (p *pass) dispensable() []*fleet.Instance {
	out := slices.Clone(p.all)
	slices.Reverse(out)
	slices.SortStableFunc(out, func(a, b *fleet.Instance) int {
		switch x, y := p.unlisted(a), p.unlisted(b); {
		case x == y:
			return 0
		case x:
			return -1
		}
		return 1
	})
	return out
}

// trimUnlisted stops the own instances without players whose name the group no longer has. Their records
// and data stay.
func (p *pass) trimUnlisted() {
	for _, i := range p.all {
		if p.unlisted(i) && p.living(i) && p.own(i) && !p.busy[i.Intent.ID] && p.in.Players(i) == 0 && !p.paired[i.Intent.ID] && !i.Intent.Frozen {
			p.stopEmpty(i, fleet.ReasonScaledDown, "staticInstanceNames of the group no longer has its name")
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
	for _, i := range p.dispensable() {
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
