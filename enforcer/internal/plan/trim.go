package plan

import (
	"fmt"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// target is the number of living instances the enforcer starts up to.
func (p *pass) target() int { return Target(p.spec()) }

// Target is how many instances a group's minimum asks for.
func Target(s *fleet.GroupSpec) int {
	n := max(0, s.Scaling.Min)
	if s.Scaling.Max > 0 {
		n = min(n, s.Scaling.Max)
	}
	if names := len(s.Static.InstanceNames); s.Static.Enabled && names > 0 {
		n = min(n, names)
	}
	return n
}

// trim stops what is in excess of the minimum, then what exceeds the maximum.
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
			if !p.seconds[i.Intent.ID] {
				surplus--
			}
		}
	}
}

// trimOwn stops the youngest of the enforcer's own that are above the target and
// have no players; a report that the last player left brings the next pass.
func (p *pass) trimOwn() {
	excess := -p.target()
	for _, i := range p.all {
		if p.living(i) && p.own(i) && !p.seconds[i.Intent.ID] {
			excess++
		}
	}
	for _, i := range slices.Backward(p.all) {
		if excess <= 0 {
			return
		}
		if p.living(i) && p.own(i) && !p.busy[i.Intent.ID] && p.in.players(i) == 0 && !p.paired[i.Intent.ID] && !i.Intent.Frozen {
			p.stop(i, fleet.ReasonScaledDown, fmt.Sprintf("the group's minimum is %d", p.target()))
			excess--
		}
	}
}

// stop makes an intent say stopped, and orders it where it may run.
func (p *pass) stop(i *fleet.Instance, why fleet.Reason, message string) {
	p.act(p.stopping(i, why, message))
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
