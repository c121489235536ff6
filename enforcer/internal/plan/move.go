package plan

import (
	"cmp"

	decider "github.com/orreryhq/orrery/enforcer/internal/move"
	"github.com/orreryhq/orrery/libs/fleet"
)

// relocate continues the moves of instances to other nodes.
func (p *pass) relocate() {
	for _, i := range p.all {
		m, c := p.in.Move(i.Intent.ID)
		if !m.Active() || p.busy[i.Intent.ID] {
			continue
		}
		d := decider.Decide(decider.Input{Move: m, Copy: c, Instance: i, Gone: p.in.Gone, Drain: p.in.Drain(m.Source)}, p.now)
		p.wakeAt(d.Wake)
		if d.Verb != decider.Wait && i.EndedUnasked() { // healing passes it over in this pass
			p.relocated++
		}
		switch d.Verb {
		case decider.Retire:
			p.act(Action{Kind: Retire, Instance: i, Reason: fleet.ReasonMoved, Message: d.Message, By: m.By, Retirement: &fleet.Retirement{
				Reason: fleet.ReasonMoved, Message: d.Message, By: m.By, DeadlineSeconds: m.DeadlineSeconds,
			}})
		case decider.Stop:
			a := p.stopping(i, fleet.ReasonMoved, d.Message)
			a.By = m.By
			delete(p.stopped, i.Intent.ID) // it keeps its place
			p.act(a)
		case decider.Write:
			why := cmp.Or(d.Move.Reason, fleet.ReasonMoved)
			p.act(Action{Kind: SetMove, Instance: i, Reason: why, Message: d.Message, By: m.By, Move: d.Move, Intent: d.Intent})
		case decider.Wait:
		}
	}
}

// away reports whether an instance is stopped while it moves. It keeps its place and starts again.
func (p *pass) away(i *fleet.Instance) bool {
	m, _ := p.in.Move(i.Intent.ID)
	return m.Active() && i.Intent.Desired == fleet.DesiredStopped && !i.Intent.RestartPending
}
