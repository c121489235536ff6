package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// heal starts what is missing, as soon as the crashes allow it.
func (p *pass) heal() {
	if p.spec().Scaling.Mode == fleet.ScalingManual || p.spec().Maintenance.On {
		return
	}
	starts := p.starts()
	if len(starts) == 0 {
		return
	}
	ready, loop := p.gate()
	if loop != nil {
		p.act(*loop)
	}
	if ready.After(p.now) {
		p.wakeAt(ready)
		return
	}
	for _, a := range starts {
		p.act(a)
	}
}

// starts are the instances to make or to make again: first for crashed ones that
// were started by hand, then up to the target, never beyond the maximum.
func (p *pass) starts() []Action {
	living, leaving := p.countLiving()+p.suspended()+p.frozen(), p.leaving()
	room := min(p.room()-living, p.in.Limits.Batch)
	if moves := p.moves(); len(moves) > 0 { // they are counted where they are
		return moves
	}
	var out []Action
	occupied := p.occupied()
	for _, i := range p.all {
		if len(out) < room && p.needsHealing(i) && !occupied(i) {
			out = append(out, p.replacement(i))
		}
	}
	lacking := min(p.target()-living-leaving-p.countUnfixed(true)-len(out), room-len(out))
	if p.spec().Static.Enabled {
		out = p.revive(out, lacking)
	} else {
		out = p.refill(out, lacking, occupied)
	}
	return out
}

// room is how many living instances the group may have.
func (p *pass) room() int {
	room := math.MaxInt
	if limit := p.spec().Scaling.Max; limit > 0 {
		room = limit
	}
	if names := len(p.spec().Static.InstanceNames); p.spec().Static.Enabled && names > 0 {
		room = min(room, names)
	}
	return room
}

// frozen counts the frozen instances that ended, or are about to, and have no successor.
// Their places are kept for them.
func (p *pass) frozen() int {
	n := 0
	for _, i := range p.all {
		if i.Intent.Frozen && !p.living(i) && !p.replaced[i.Intent.ID] {
			n++
		}
	}
	return n
}

// leaving counts the instances whose agent was told to stop everything and is
// still there: started again now, they would meet the same end.
func (p *pass) leaving() int {
	n := 0
	for _, i := range p.all {
		if p.agentLeaves(i) && !p.replaced[i.Intent.ID] && !i.Intent.Frozen {
			n++
		}
	}
	return n
}

// agentLeaves reports whether an instance ended with its agent and the session it
// was reported under still lives; for a while only, since no state waits for ever.
func (p *pass) agentLeaves(i *fleet.Instance) bool {
	if !i.EndedUnasked() || i.Status.Reason != fleet.ReasonAgentShutdown {
		return false
	}
	if s := p.in.session(i.Status.Node); s == nil || s.CreateRev > i.Status.Epoch {
		return false
	}
	until := i.FinishedAt().Add(p.in.Limits.LeaveFor)
	p.wakeAt(until)
	return until.After(p.now)
}

// needsHealing reports whether an instance that was started by hand ended unasked,
// made room for another, or is displaced, and nobody was started in its place yet.
func (p *pass) needsHealing(i *fleet.Instance) bool {
	if p.busy[i.Intent.ID] || p.replaced[i.Intent.ID] || p.own(i) || i.Intent.Frozen || p.unfixed(i) {
		return false
	}
	heals := p.spec().OnCrash != fleet.CrashStop || i.EndedByPlatform()
	return p.displaced(i) || preempted(i) || i.EndedUnasked() && heals && !p.agentLeaves(i)
}

// replacement is the same instance again in a static group, else a new one in its place.
func (p *pass) replacement(i *fleet.Instance) Action {
	_, how := i.Why()
	if i.Lost() {
		message := fmt.Sprintf("%s was on %s, which is lost", i.Intent.Name, i.Placement.Node)
		return Action{Kind: Create, Origin: i.Intent.Origin, Replaces: i, Reason: fleet.ReasonReplacement, Message: message}
	}
	message := fmt.Sprintf("%s ended: %s", i.Intent.Name, how)
	if preempted(i) {
		message = fmt.Sprintf("%s had to make room", i.Intent.Name)
	}
	if p.spec().Static.Enabled {
		return Action{Kind: Again, Instance: i, Reason: fleet.ReasonReplacement, Message: message}
	}
	return Action{Kind: Create, Origin: i.Intent.Origin, Replaces: i, Reason: fleet.ReasonReplacement, Message: message}
}

// refill adds new instances; as long as crashed or lost ones of the enforcer's own lack a
// successor, each new one is made for one of them, so that history is clear.
func (p *pass) refill(out []Action, lacking int, occupied func(*fleet.Instance) bool) []Action {
	var crashed []*fleet.Instance
	for _, i := range p.all {
		ended := i.EndedUnasked() && !p.agentLeaves(i)
		if (ended || p.displaced(i)) && p.own(i) && !i.Intent.Frozen && !p.unfixed(i) && !p.replaced[i.Intent.ID] && !p.busy[i.Intent.ID] && !occupied(i) {
			crashed = append(crashed, i)
		}
	}
	for n := range max(0, lacking) {
		if n < len(crashed) {
			a := p.replacement(crashed[n])
			a.Origin = fleet.OriginMinimum
			out = append(out, a)
			continue
		}
		out = append(out, Action{Kind: Create, Origin: fleet.OriginMinimum, Reason: fleet.ReasonBelowMinimum, Message: p.belowMinimum()})
	}
	return out
}

// unfixed reports whether the command of an instance could not be run, and nothing has
// changed since that may fix it: the group, what it inherits, a template, or a reset of
// its crashes. Such an instance is not started again, and keeps its place.
func (p *pass) unfixed(i *fleet.Instance) bool {
	if !i.Unrunnable() || p.replaced[i.Intent.ID] || i.Intent.GroupRevision != p.group().Revision || p.in.republished(i.Intent.Plan) {
		return false
	}
	fixed := p.group().CrashesResetAt
	for _, a := range p.in.Ancestors {
		fixed = latest(fixed, a.UpdatedAt)
	}
	return i.FinishedAt().After(fixed)
}

// countUnfixed counts the unfixed instances that the enforcer started, or those that were
// started by hand. Only the former have a place within the minimum.
func (p *pass) countUnfixed(own bool) int {
	n := 0
	for _, i := range p.all {
		if p.unfixed(i) && p.own(i) == own && !i.Intent.Frozen { // the frozen are counted by frozen
			n++
		}
	}
	return n
}

// ending counts the instances that were told to stop and have not ended yet.
func (p *pass) ending() int {
	n := 0
	for _, i := range p.all {
		if i.Intent.Desired == fleet.DesiredStopped && !i.Terminal() && !i.Lost() && !p.living(i) && !i.Intent.Frozen {
			n++
		}
	}
	return n
}

// revive adds instances of a static group: those that ended first, crashed before
// stopped and by ordinal, then new ones. None is made for one that is about to end or is
// unfixed: it is started again itself, with its data.
func (p *pass) revive(out []Action, lacking int) []Action {
	planned := map[fleet.InstanceID]bool{}
	for _, a := range out {
		planned[a.Instance.Intent.ID] = true
	}
	var ended []*fleet.Instance
	for _, i := range p.all {
		if i.Terminal() && !p.busy[i.Intent.ID] && !planned[i.Intent.ID] && !p.agentLeaves(i) && !i.Intent.Frozen && !p.unfixed(i) {
			ended = append(ended, i)
		}
	}
	slices.SortStableFunc(ended, func(a, b *fleet.Instance) int {
		return cmp.Or(-compareBool(a.EndedUnasked(), b.EndedUnasked()), cmp.Compare(a.Intent.Ordinal, b.Intent.Ordinal))
	})
	fresh := lacking - p.ending() - p.countUnfixed(false)
	for n := range max(0, lacking) {
		switch {
		case n >= len(ended) && n >= fresh:
			return out
		case n >= len(ended):
			out = append(out, Action{Kind: Create, Origin: fleet.OriginMinimum, Reason: fleet.ReasonBelowMinimum, Message: p.belowMinimum()})
		case ended[n].EndedUnasked():
			out = append(out, p.replacement(ended[n]))
		default:
			out = append(out, Action{Kind: Again, Instance: ended[n], Reason: fleet.ReasonBelowMinimum, Message: p.belowMinimum()})
		}
	}
	return out
}

func (p *pass) belowMinimum() string {
	return fmt.Sprintf("the group's minimum is %d", p.target())
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
