package plan

import (
	"fmt"
	"math"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/drain"
	"github.com/orreryhq/orrery/libs/fleet/move"
)

// decideDrains decides about the instances on draining nodes, before anything counts instances.
func (p *pass) decideDrains() {
	if p.group() == nil || p.group().Deleting {
		return
	}
	g := drain.Group{
		Spec: p.spec(), Target: p.target(), Maintenance: p.maintained(), Unmet: p.in.Unmet, Instances: p.all,
		Draining: p.draining, Players: p.in.Players,
		Move: func(id fleet.InstanceID) *move.Move { m, _ := p.in.Move(id); return m },
	}
	var wake time.Time
	if p.drains, wake = g.Of(p.now); len(p.drains) == 0 {
		return
	}
	p.wakeAt(wake)
	p.leaves = map[fleet.InstanceID]bool{}
	for _, s := range p.drains {
		p.leaves[s.Instance.Intent.ID] = g.Leaves(s.Instance)
	}
}

// draining returns the drain of a node that is not complete, or nil.
func (p *pass) draining(n fleet.NodeID) *fleet.NodeDrain {
	if d := p.in.Drain(n); d != nil && d.CompletedAt.IsZero() {
		return d
	}
	return nil
}

// drain retires and stops the instances on draining nodes. It ends the retirements for a drain that
// a user has ended.
func (p *pass) drain() {
	for _, s := range p.drains {
		i := s.Instance
		if p.busy[i.Intent.ID] {
			continue
		}
		d := p.draining(s.Node)
		switch s.Verb {
		case drain.Stop:
			a := p.stopping(i, s.Reason, s.Message)
			a.By = d.By
			if p.spec().Static.Enabled { // it keeps its place
				delete(p.stopped, i.Intent.ID)
			}
			p.act(a)
		case drain.Retire:
			if m, _ := p.in.Move(i.Intent.ID); m.Active() { // the move retires it
				continue
			}
			if !drain.Retires(i) || i.Intent.Retire.At.Before(d.At) {
				p.retireFor(s, d)
			}
		case drain.Wait, drain.Ending, drain.Move, drain.Block:
		}
	}
	for _, i := range p.all {
		if drain.Retires(i) && !p.busy[i.Intent.ID] && p.draining(i.Node()) == nil {
			p.act(Action{Kind: Retire, Instance: i, Reason: fleet.ReasonNodeReady, Message: fleet.ReasonNodeReady.Text()})
		}
	}
}

// retireFor retires an instance for a drain. It may keep its players as long as the drain allows.
func (p *pass) retireFor(s drain.Step, d *fleet.NodeDrain) {
	p.act(Action{Kind: Retire, Instance: s.Instance, Reason: s.Reason, Message: s.Message, By: d.By, Retirement: &fleet.Retirement{
		Reason: s.Reason, Message: s.Message, By: d.By, DeadlineSeconds: int(math.Ceil(s.Left.Seconds())),
	}})
}

// down reports whether an instance of a static group was stopped for a drain, or while it moves. It
// keeps its place until it is started again.
func (p *pass) down(i *fleet.Instance) bool { return drain.Down(p.spec(), i) || p.away(i) }

// drained counts the instances that are down and take a place. One that a user stopped before its move
// takes none.
func (p *pass) drained() int {
	n := 0
	for _, i := range p.all {
		if drain.Down(p.spec(), i) || p.away(i) && i.Intent.Stop != nil && i.Intent.Stop.Reason == fleet.ReasonMoved && !i.Intent.Frozen {
			n++
		}
	}
	return n
}

// resume starts the instances again that were stopped for a drain, once a user has ended it.
func (p *pass) resume() {
	if p.maintained() || p.in.Unmet {
		return
	}
	for _, i := range p.all {
		if p.down(i) && !p.away(i) && i.Terminal() && !p.busy[i.Intent.ID] && p.in.Drain(i.Node()) == nil {
			p.act(Action{Kind: Restart, Instance: i, Reason: fleet.ReasonNodeReady, Message: fmt.Sprintf("the drain of node %s was ended", i.Node())})
		}
	}
}
