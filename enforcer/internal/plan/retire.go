package plan

import (
	"cmp"
	"fmt"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// makesWay reports whether an instance retires, or soon will for a drain, and no longer counts in its
// group, so that the group starts another one before it stops. The instances of a static group keep
// their place.
func (p *pass) makesWay(i *fleet.Instance) bool {
	return !p.spec().Static.Enabled && (p.leaves[i.Intent.ID] || i.Retiring() && !i.Intent.Retire.Restart)
}

// endRetirements stops the retiring instances that are empty and not needed any more, and those
// whose deadline has passed.
func (p *pass) endRetirements() {
	for _, i := range p.all {
		r := i.Intent.Retire
		if p.busy[i.Intent.ID] || !i.Retiring() || i.Terminal() || i.Intent.Frozen {
			continue
		}
		players, message := p.in.Players(i), cmp.Or(r.Message, r.Reason.Text())
		a := Action{}
		switch {
		case p.due(r.At, time.Duration(r.DeadlineSeconds)*time.Second):
			a = p.stopping(i, r.Reason, fmt.Sprintf("%s; its %d seconds to become empty are over, and it has %d players", message, r.DeadlineSeconds, players))
		case i.Lost() || players > 0 || p.needed(i):
			continue
		default:
			a = p.stopping(i, r.Reason, message)
			a.WhileEmpty = true
		}
		a.By, a.Again = r.By, r.Restart
		if a.Again || p.spec().Static.Enabled && (r.Reason == fleet.ReasonNodeDrained || r.Reason == fleet.ReasonMoved) { // it keeps its place
			delete(p.stopped, i.Intent.ID)
		} else {
			a.Restores = p.restoredBy(i)
		}
		p.act(a)
	}
}

// restoredBy returns the instance that i replaced and that lives in its place, or nil.
func (p *pass) restoredBy(i *fleet.Instance) *fleet.Instance {
	for _, other := range p.all {
		if other.Intent.ReplacedBy == i.Intent.ID && p.living(other) && !p.busy[other.Intent.ID] {
			return other
		}
	}
	return nil
}

// needed reports whether an empty retiring instance must still stay: a player may be on the way to
// it, its replacement is not ready, or too few other instances are.
func (p *pass) needed(i *fleet.Instance) bool {
	if i.State() != fleet.Online {
		return false
	}
	if !p.due(i.Intent.Retire.At, p.in.Limits.RetireGrace) {
		return true
	}
	if p.spec().Static.Enabled || i.Intent.Retire.Restart || p.maintained() || p.spec().Scaling.Mode == fleet.ScalingManual {
		return false
	}
	if next := p.replacementOf(i); next != nil && p.living(next) && !ready(next) {
		return true
	}
	serve := 0
	for _, other := range p.all {
		if p.living(other) && ready(other) && !other.Intent.Standby {
			serve++
		}
	}
	return serve < p.target()
}
