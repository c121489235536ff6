package plan

import (
	"fmt"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// preempt stops preempted instances whose beneficiary still waits and may still preempt
// them. It runs before replacements are decided.
func (p *pass) preempt() {
	for _, i := range p.all {
		e := p.in.Eviction(i.Intent.ID)
		if e != nil && e.Reason != fleet.ReasonRebalanced && p.mayGo(i, e) && p.in.Players(i) == 0 && p.in.Waits(e.For) && p.in.Outranks(e.For, p.spec().Priority) {
			p.stopEmpty(i, fleet.ReasonPreempted, e.Message)
		}
	}
}

// cancelMoves ends the moves of instances that were stopped meanwhile. It runs before duplicates
// are resolved.
func (p *pass) cancelMoves() {
	for _, i := range p.all {
		e := p.in.Eviction(i.Intent.ID)
		if e != nil && e.Reason == fleet.ReasonRebalanced && !p.busy[i.Intent.ID] && !p.mayGo(i, e) {
			p.stopReplacement(i)
		}
	}
}

// continueMoves continues the moves that the scheduler requested, if they are still possible.
// removeEvictions removes those that are done or impossible.
func (p *pass) continueMoves() {
	for _, i := range p.all {
		e := p.in.Eviction(i.Intent.ID)
		if e != nil && e.Reason == fleet.ReasonRebalanced && !p.busy[i.Intent.ID] && p.mayGo(i, e) {
			p.move(i, e)
		}
	}
}

// mayGo reports whether an eviction refers to the current run and the group allows ending
// it. A lost instance is not moved, because the loss of its node already decides about its
// replacement.
func (p *pass) mayGo(i *fleet.Instance, e *fleet.Eviction) bool {
	return i.HoldsNode() && !i.Lost() && p.wanted(i) && i.Intent.Generation == e.Generation && i.Placement.Generation == e.Generation &&
		i.Placement.Node == e.Node && !p.spec().Static.Enabled && !i.Intent.Frozen && !p.makesWay(i)
}

// move starts a replacement for an instance that should leave its node, and stops the
// original once the replacement is ready. Until then the two count as one. The move is
// given up when players join the original and the replacement is empty, or when the
// replacement is not ready in time.
func (p *pass) move(i *fleet.Instance, e *fleet.Eviction) {
	if i.Intent.ReplacedBy == "" {
		if p.mayMove(i) {
			p.act(Action{Kind: Create, Origin: i.Intent.Origin, Replaces: i, Reason: fleet.ReasonRebalanced, Message: e.Message})
		}
		return
	}
	second := p.replacementOf(i)
	if second == nil || p.busy[second.Intent.ID] || !p.living(second) || second.Intent.Frozen { // the replacement failed, or must stay as it is
		return
	}
	switch here, there := p.in.Players(i), p.in.Players(second); {
	case here > 0 && there == 0:
		p.stopEmpty(second, fleet.ReasonRebalanced, fmt.Sprintf("%s has players again and stays", i.Intent.Name))
	case here > 0: // both have players: wait until one has none
	case second.State() == fleet.Online:
		p.stopEmpty(i, fleet.ReasonRebalanced, e.Message)
	case there == 0 && p.due(second.Intent.CreatedAt, p.in.Limits.MoveFor):
		p.stopEmpty(second, fleet.ReasonRebalanced, fmt.Sprintf("it was not ready within %v: %s stays", p.in.Limits.MoveFor, i.Intent.Name))
	}
	p.pair(p.inPlace(i))
}

// moving reports whether an instance is being moved. Then its replacement is not a double.
func (p *pass) moving(i *fleet.Instance) bool {
	e, second := p.in.Eviction(i.Intent.ID), p.replacementOf(i)
	return e != nil && e.Reason == fleet.ReasonRebalanced && second != nil && p.living(second) && p.mayGo(i, e)
}

// shared reports whether another living instance has the same place.
func (p *pass) shared(i *fleet.Instance) bool {
	return slices.ContainsFunc(p.inPlace(i), func(other *fleet.Instance) bool { return other != i && p.living(other) })
}

// inPlace returns all instances with the same place.
func (p *pass) inPlace(i *fleet.Instance) (out []*fleet.Instance) {
	for _, other := range p.all {
		if other.Intent.Place() == i.Intent.Place() {
			out = append(out, other)
		}
	}
	return out
}

// stopReplacement stops the replacement of an instance that was stopped during its move, because the
// request was meant for the place. If the replacement itself is being moved, stopReplacement
// stops its replacement too, in the same pass.
func (p *pass) stopReplacement(i *fleet.Instance) {
	s := i.Intent.Stop
	if p.spec().Static.Enabled || i.Intent.Desired != fleet.DesiredStopped || i.Intent.RestartPending || s == nil || s.Reason != fleet.ReasonStopRequested {
		return
	}
	for {
		second := p.replacementOf(i)
		if second == nil || p.busy[second.Intent.ID] || !p.living(second) || second.Intent.Frozen || p.in.Players(second) > 0 {
			return
		}
		p.stop(second, s.Reason, fmt.Sprintf("%s was stopped while it was being moved", i.Intent.Name))
		if e := p.in.Eviction(second.Intent.ID); e == nil || e.Reason != fleet.ReasonRebalanced {
			return
		}
		i = second
	}
}

// mayMove reports whether a replacement may be started for an instance that should move.
func (p *pass) mayMove(i *fleet.Instance) bool {
	s := p.spec()
	if !s.Rebalance || p.maintained() || s.Scaling.Mode == fleet.ScalingManual || p.in.Players(i) > 0 || i.State() != fleet.Online || p.shared(i) {
		return false
	}
	if s.Scaling.Max > 0 && p.countLiving() > s.Scaling.Max {
		return false
	}
	ready, pause := p.gate()
	return pause == nil && !ready.After(p.now)
}

// replacementOf returns the replacement of an instance, or nil.
func (p *pass) replacementOf(i *fleet.Instance) *fleet.Instance {
	for _, second := range p.all {
		if second.Intent.ID == i.Intent.ReplacedBy {
			return second
		}
	}
	return nil
}

// preempted reports whether an instance was stopped to make room for another.
func preempted(i *fleet.Instance) bool {
	s := i.Intent.Stop
	return i.Intent.Desired == fleet.DesiredStopped && s != nil && s.Reason == fleet.ReasonPreempted
}

// removeEvictions removes the evictions that are done or impossible, of instances without another
// action in this pass.
func (p *pass) removeEvictions() {
	for _, i := range p.all {
		e := p.in.Eviction(i.Intent.ID)
		if e == nil || p.busy[i.Intent.ID] {
			continue
		}
		a := Action{Kind: RemoveEviction, Instance: i, Reason: e.Reason}
		var over bool
		if e.Reason == fleet.ReasonRebalanced {
			over = p.moved(i, e, &a)
		} else {
			over = p.madeRoom(i, e, &a)
		}
		if over {
			p.act(a)
		}
	}
}

// madeRoom reports whether a preemption is over. Its record keeps the resources for the
// beneficiary, until that is placed or for a while after the victim's end.
func (p *pass) madeRoom(i *fleet.Instance, e *fleet.Eviction, a *Action) bool {
	switch {
	case !p.in.Waits(e.For):
		a.Message = string(e.For) + " does not wait for room any more"
		return true
	case !preempted(i) || p.group() == nil:
		a.Message = i.Intent.Name + " cannot make room any more"
		return true
	case i.HoldsNode():
		return false
	}
	a.Message = string(e.For) + " did not take the room in time"
	since := e.At
	if end := i.FinishedAt(); !end.After(p.now) { // ignore a node's clock that is ahead
		since = latest(since, end)
	}
	return p.due(since, p.in.Limits.RoomFor)
}

// moved reports whether a move is over. If the replacement failed, the instance counts as
// never replaced.
func (p *pass) moved(i *fleet.Instance, e *fleet.Eviction, a *Action) bool {
	g := p.group()
	if g == nil || g.Deleting || !p.mayGo(i, e) {
		a.Message = i.Intent.Name + " is not to be moved any more"
		return true
	}
	second := p.replacementOf(i)
	if second != nil && (p.busy[second.Intent.ID] || p.living(second)) {
		return false
	}
	a.Message = i.Intent.Name + " stays where it is"
	a.Stays = i.Intent.ReplacedBy != ""
	return true
}
