package plan

import (
	"cmp"

	"github.com/orreryhq/orrery/enforcer/internal/rollout"
	"github.com/orreryhq/orrery/libs/fleet"
)

func (p *pass) rolloutInput() rollout.Input {
	return rollout.Input{
		Deployments: p.in.Deployments, Instances: p.all, Maintenance: p.maintained(), CrashPaused: p.crashPaused, Crashes: p.in.Crashes,
		Plan: p.in.Plan, Players: p.in.Players, TPS: func(i *fleet.Instance) float64 { return p.in.Figures(i).TPS }, Moving: p.goes,
	}
}

// goes reports whether an instance leaves its node for another reason than a deployment: the scheduler
// moves it, or its node is being drained.
func (p *pass) goes(i *fleet.Instance) bool {
	e := p.in.Eviction(i.Intent.ID)
	return p.leaves[i.Intent.ID] || e != nil && e.Reason == fleet.ReasonRebalanced
}

// crashPaused reports whether the group starts nothing because of crashes.
func (p *pass) crashPaused() bool {
	if loop := p.in.CrashLoop; loop != nil && loop.EndsAt(p.group(), p.in.Ancestors).After(p.now) {
		return true
	}
	_, pause := p.gate()
	return pause != nil
}

// rollOut continues the deployments of the group. An original and its replacement count as one
// instance until the original retires.
func (p *pass) rollOut() {
	if len(p.in.Deployments) == 0 {
		return
	}
	d := rollout.Decide(p.rolloutInput(), p.now)
	p.wakeAt(d.Wake)
	for _, s := range d.Steps {
		if a, ok := p.rolloutAction(s); ok {
			p.act(a)
		}
	}
	for place := range d.Places {
		var all []*fleet.Instance
		for _, i := range p.all {
			if i.Intent.Place() == place {
				all = append(all, i)
			}
		}
		p.pair(all)
	}
	for _, next := range d.Progress {
		p.act(Action{Kind: SetProgress, Progress: next, Reason: fleet.ReasonDeployment, Message: cmp.Or(next.Message, fleet.ReasonDeployment.Text())})
	}
	for _, number := range d.Delete {
		a := Action{Kind: DeleteDeployment, Reason: fleet.ReasonRetention, Message: fleet.ReasonRetention.Text()}
		a.Progress.Group, a.Progress.Number = p.group().Name, number
		p.act(a)
	}
}

// rolloutAction returns the action of a step. ok is false if it must wait.
func (p *pass) rolloutAction(s rollout.Step) (a Action, ok bool) {
	i := s.Instance
	if p.busy[i.Intent.ID] || s.Restores != nil && p.busy[s.Restores.Intent.ID] {
		return a, false
	}
	latest := p.in.Deployments[len(p.in.Deployments)-1]
	a = Action{Instance: i, Reason: fleet.ReasonDeployment, Message: s.Message, By: latest.By}
	if starts := s.Kind == rollout.Start || s.Again; starts && (p.in.Unmet || !p.mayStart()) {
		return a, false
	}
	switch s.Kind {
	case rollout.Start:
		a.Kind, a.Origin, a.Instance, a.Replaces, a.Standby = Create, i.Intent.Origin, nil, i, s.Standby
		if p.own(i) {
			a.Origin = fleet.OriginMinimum
		}
	case rollout.Renew:
		a.Kind = Restart
	case rollout.Keep:
		a.Kind = Retire
	case rollout.Admit:
		a.Kind = Admit
	case rollout.Retire:
		a.Kind = Retire
		a.Retirement = &fleet.Retirement{
			Reason: a.Reason, Message: a.Message, By: a.By, Restart: s.Again,
			TransferAfterSeconds: latest.Options.DeadlineSeconds, DeadlineSeconds: latest.Options.DeadlineSeconds + latest.Options.GraceSeconds,
		}
	case rollout.Stop:
		a = p.stopping(i, a.Reason, s.Message)
		a.By, a.Again, a.Restores, a.WhileEmpty = latest.By, s.Again, s.Restores, true
		if a.Again { // it keeps its place
			delete(p.stopped, i.Intent.ID)
		}
	}
	return a, true
}
