package plan

import (
	"fmt"
	"time"

	"github.com/orreryhq/orrery/enforcer/internal/scale"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
)

// scale changes the number of instances if the load of the group needs that. More instances are
// only decided here: the next pass starts them, once the decision is stored.
func (p *pass) scale() {
	if ok, why := scaling.Automatic(p.spec()); !ok {
		if p.in.Scaled != nil {
			p.act(Action{Kind: ClearScaling, Reason: fleet.ReasonRequested, Message: why})
		}
		return
	}
	if p.maintained() || p.in.Unmet {
		return
	}
	in := p.scaleInput()
	out := scale.Decide(in, p.now)
	p.wakeAt(out.Wake)
	if out.Decision != nil && !p.mayScale(out.Decision) {
		out.Decision = nil
	}
	if p.in.Scales != nil {
		p.in.Scales(in, out)
	}
	if out.Decision == nil {
		return
	}
	if !out.Decision.Up() {
		p.decided = out.Decision.Target
	}
	out.Decision.Group = p.group().Name
	p.act(Action{Kind: SetScaling, Scaling: out.Decision, Reason: out.Decision.Reason, Message: out.Decision.Message})
	idle := map[fleet.InstanceID]bool{}
	for _, id := range out.Stop {
		idle[id] = true
	}
	for _, i := range p.all {
		if idle[i.Intent.ID] {
			p.stopEmpty(i, out.Decision.Reason, fmt.Sprintf("it had no players for %d s, and the group needs %d instances", p.spec().Scaling.DownAfterSeconds, out.Decision.To))
		}
	}
}

// mayScale reports whether a decision may be carried out now: not during a mass outage, and more
// instances only if the crashes allow a start.
func (p *pass) mayScale(d *scaling.Decision) bool {
	if p.massLoss() {
		return false
	}
	if !d.Up() {
		return true
	}
	ready, loop := p.gate() // heal sets the loop
	p.wakeAt(ready)
	return loop == nil && !ready.After(p.now)
}

// asked returns how many instances the policies of the group ask for; 0 for none.
func (p *pass) asked() int {
	if ok, _ := scaling.Automatic(p.spec()); !ok || len(p.in.Rules) == 0 {
		return 0
	}
	return p.scaleInput().Ask().Instances
}

func (p *pass) scaleInput() scale.Input {
	in := scale.Input{
		Spec: p.spec(), Decided: p.decided, Instances: p.loaded(), Rules: p.in.Rules, Wall: p.in.Wall,
		Count: p.countLiving() + p.suspended() + p.frozen() + p.leaving() + p.countUnfixed(true), ChangedAt: p.group().ScaledAt,
	}
	for _, i := range p.all {
		if p.needsHealing(i) {
			in.Count++
		}
		if p.living(i) && p.own(i) && !p.duplicates[i.Intent.ID] {
			in.Own++
		}
	}
	if d := p.in.Scaled; d != nil {
		in.ChangedAt = latest(in.ChangedAt, d.At)
	}
	return in
}

// loaded returns what the load of the group consists of.
func (p *pass) loaded() []scale.Instance {
	var out []scale.Instance
	for _, i := range p.all {
		waits := p.living(i) && (i.NeedsPlacement() && !i.HoldsNode() || i.State() == fleet.Sleeping)
		if p.stopped[i.Intent.ID] || i.Intent.Desired != fleet.DesiredRunning || i.State() != fleet.Online && !waits {
			continue
		}
		out = append(out, scale.Instance{ID: i.Intent.ID, Instance: p.loadOf(i), Waits: waits, IdleSince: p.idleSince(i)})
	}
	return out
}

func (p *pass) loadOf(i *fleet.Instance) scaling.Instance {
	r := p.in.Figures(i)
	return scaling.Instance{Players: p.in.Players(i), MaxPlayers: r.MaxPlayers, TPS: r.TPS, Closed: !i.TakesPlayers() || p.duplicates[i.Intent.ID]}
}

// idleSince returns since when an instance has had no players or has waited for a node. It returns
// zero if the instance must not be stopped for that.
func (p *pass) idleSince(i *fleet.Instance) time.Time {
	switch {
	case !p.own(i) || !p.living(i) || p.busy[i.Intent.ID] || p.paired[i.Intent.ID] || p.in.Eviction(i.Intent.ID) != nil:
	case i.Intent.Frozen || i.Retiring() || p.in.Players(i) > 0:
	case i.State() == fleet.Sleeping:
		return p.in.EmptySince(i)
	case i.State() == fleet.Online:
		return latest(p.in.EmptySince(i), i.Status.ChangedAt)
	default:
		return i.Intent.GenerationAt
	}
	return time.Time{}
}

// loadNeeds returns a function that reports whether the load of the group needs an instance. Otherwise
// the function no longer counts it.
func (p *pass) loadNeeds() func(*fleet.Instance) bool {
	if ok, _ := scaling.Automatic(p.spec()); !ok {
		return func(*fleet.Instance) bool { return false }
	}
	load := scale.Running(p.loaded(), p.spec())
	return func(i *fleet.Instance) bool {
		if i.State() != fleet.Online {
			return false
		}
		without := load.With(-1, p.loadOf(i), p.spec().Players.Max)
		if why, _ := without.Exceeds(&p.spec().Scaling); why != "" {
			return true
		}
		load = without
		return false
	}
}

// below returns why an instance is created or restarted that the target requires.
func (p *pass) below() (fleet.Reason, string) {
	switch least := scaling.Target(p.spec(), 0); {
	case p.target() == least:
		return fleet.ReasonBelowMinimum, fmt.Sprintf("the group's minimum is %d", least)
	case p.in.Scaled != nil && p.in.Scaled.Up():
		return p.in.Scaled.Reason, p.in.Scaled.Message
	}
	return fleet.ReasonBelowMinimum, fmt.Sprintf("the group was scaled to %d instances because of its load", p.target())
}
