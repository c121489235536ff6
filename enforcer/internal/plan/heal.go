package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/naming"
)

// heal starts missing instances as soon as the crashes allow it.
func (p *pass) heal() {
	if p.spec().Scaling.Mode == fleet.ScalingManual || p.maintained() || p.in.Unmet {
		return
	}
	starts := p.starts()
	if len(starts) == 0 {
		return
	}
	if !p.mayStart() {
		return
	}
	for _, a := range starts {
		p.act(a)
	}
}

// mayStart reports whether the crashes allow a start now. It pauses the group when they are too
// many, and otherwise asks for another pass.
func (p *pass) mayStart() bool {
	ready, loop := p.gate()
	if loop != nil && !p.pausing {
		p.pausing = true
		p.act(*loop)
	}
	p.wakeAt(ready)
	return !ready.After(p.now)
}

// starts returns the instances to create or restart, up to the maximum: first replacements
// for instances started by hand, then up to the target.
func (p *pass) starts() []Action {
	living, leaving := p.countLiving()+p.suspended()+p.frozen()+p.drained()+p.relocated, p.leaving()
	room := min(p.room()-living, p.in.Limits.Batch)
	if moves := p.moves(); len(moves) > 0 { // a moved instance already counts
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
		return p.named(p.revive(out, lacking))
	}
	return p.refill(out, lacking, occupied)
}

// room returns how many living instances the group may have.
func (p *pass) room() int {
	room := math.MaxInt
	if limit := p.spec().Scaling.Max; limit > 0 {
		room = limit
	}
	if names := len(naming.Fixed(p.spec())); names > 0 {
		room = min(room, names)
	}
	return room
}

// unlisted reports whether the fixed names of the group no longer have that of an instance. It is
// stopped once it has no players, and not started.
func (p *pass) unlisted(i *fleet.Instance) bool {
	return p.group() != nil && naming.Unlisted(p.group(), i.Intent.Name)
}

// named removes the creations for which the group has no free name.
func (p *pass) named(starts []Action) []Action {
	names := len(naming.Fixed(p.spec()))
	if names == 0 {
		return starts
	}
	free := names - len(naming.HeldPlaces(p.group(), slices.Values(p.every)))
	return slices.DeleteFunc(starts, func(a Action) bool {
		if a.Kind == Create {
			free--
		}
		return a.Kind == Create && free < 0
	})
}

// frozen counts the frozen instances that do not live and have no replacement. Their places
// stay reserved.
func (p *pass) frozen() int {
	n := 0
	for _, i := range p.all {
		if i.Intent.Frozen && !i.Intent.Warm && !p.living(i) && !p.replaced[i.Intent.ID] {
			n++
		}
	}
	return n
}

// leaving counts the instances whose agent is shutting down. If they were restarted now,
// the agent would stop them again.
func (p *pass) leaving() int {
	n := 0
	for _, i := range p.all {
		if p.agentLeaves(i) && !p.unlisted(i) && !p.replaced[i.Intent.ID] && !i.Intent.Frozen && !p.makesWay(i) {
			n++
		}
	}
	return n
}

// agentLeaves reports whether an instance ended because its agent shuts down while the
// agent's session is still alive. It gives up waiting after Limits.LeaveFor.
func (p *pass) agentLeaves(i *fleet.Instance) bool {
	if !i.EndedUnasked() || i.Status.Reason != fleet.ReasonAgentShutdown {
		return false
	}
	if s := p.in.Session(i.Status.Node); s == nil || s.CreateRev > i.Status.Epoch {
		return false
	}
	until := i.FinishedAt().Add(p.in.Limits.LeaveFor)
	p.wakeAt(until)
	return until.After(p.now)
}

// needsHealing reports whether an instance started by hand needs a replacement: it ended
// without a request, was preempted, or is on a lost node, and has no replacement yet.
func (p *pass) needsHealing(i *fleet.Instance) bool {
	if p.busy[i.Intent.ID] || p.replaced[i.Intent.ID] || p.own(i) || i.Intent.Frozen || p.unfixed(i) || p.makesWay(i) || p.unlisted(i) {
		return false
	}
	heals := p.spec().OnCrash != fleet.CrashStop || i.EndedByPlatform()
	return p.displaced(i) || preempted(i) || i.EndedUnasked() && heals && !p.agentLeaves(i)
}

// replacement restarts the same instance in a static group and creates a new one in other
// groups.
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
		return Action{Kind: Restart, Instance: i, Reason: fleet.ReasonReplacement, Message: message}
	}
	return Action{Kind: Create, Origin: i.Intent.Origin, Replaces: i, Reason: fleet.ReasonReplacement, Message: message}
}

// refill adds new instances. While own instances that crashed or are lost have no
// replacement, each new one replaces one of them.
func (p *pass) refill(out []Action, lacking int, occupied func(*fleet.Instance) bool) []Action {
	var crashed []*fleet.Instance
	for _, i := range p.all {
		ended := i.EndedUnasked() && !p.agentLeaves(i)
		if (ended || p.displaced(i)) && p.own(i) && !p.makesWay(i) && !i.Intent.Frozen && !i.Intent.Warm && !p.unfixed(i) && !p.replaced[i.Intent.ID] && !p.busy[i.Intent.ID] && !occupied(i) {
			crashed = append(crashed, i)
		}
	}
	why, message := p.below()
	for n := range max(0, lacking) {
		if n < len(crashed) {
			a := p.replacement(crashed[n])
			a.Origin = fleet.OriginMinimum
			out = append(out, a)
			continue
		}
		if i := p.prepared(); i != nil {
			out = append(out, Action{Kind: Promote, Instance: i, Reason: why, Message: message})
			continue
		}
		out = append(out, Action{Kind: Create, Origin: fleet.OriginMinimum, Reason: why, Message: message})
	}
	return out
}

// unfixed reports whether an instance's command could not run and nothing that may fix it
// has changed since: the group, a group it inherits from, a template, or a reset of the
// crashes. Such an instance is not restarted and keeps its place.
func (p *pass) unfixed(i *fleet.Instance) bool {
	if !i.Unrunnable() || i.Intent.Warm || p.unlisted(i) || p.makesWay(i) || p.replaced[i.Intent.ID] || i.Intent.GroupRevision != p.group().Revision || p.in.Republished(i.Intent.Plan) {
		return false
	}
	fixed := p.group().CrashesResetAt
	for _, a := range p.in.Ancestors {
		fixed = latest(fixed, a.UpdatedAt)
	}
	return i.FinishedAt().After(fixed)
}

// countUnfixed counts the unfixed instances, either the enforcer's own or those started by
// hand. Only own instances count towards the minimum.
func (p *pass) countUnfixed(own bool) int {
	n := 0
	for _, i := range p.all {
		if p.unfixed(i) && p.own(i) == own && !i.Intent.Frozen { // frozen counts the frozen ones
			n++
		}
	}
	return n
}

// ending counts the instances that were asked to stop and have not ended yet.
func (p *pass) ending() int {
	n := 0
	for _, i := range p.all {
		if i.Intent.Desired == fleet.DesiredStopped && !i.Terminal() && !i.Lost() && !p.living(i) && !i.Intent.Frozen && !p.down(i) && !p.unlisted(i) {
			n++
		}
	}
	return n
}

// revive adds instances of a static group, without the unlisted ones. It first restarts ended
// ones, crashed before stopped and then by rank, and then creates new ones. It creates none in
// place of an instance that is stopping or unfixed, because that one will be restarted with its
// data.
func (p *pass) revive(out []Action, lacking int) []Action {
	planned := map[fleet.InstanceID]bool{}
	for _, a := range out {
		planned[a.Instance.Intent.ID] = true
	}
	var ended []*fleet.Instance
	for _, i := range p.all {
		if i.Terminal() && !p.busy[i.Intent.ID] && !planned[i.Intent.ID] && !p.agentLeaves(i) && !i.Intent.Frozen && !p.unfixed(i) && !p.down(i) && !p.unlisted(i) {
			ended = append(ended, i)
		}
	}
	slices.SortStableFunc(ended, func(a, b *fleet.Instance) int {
		switch {
		case a.EndedUnasked() == b.EndedUnasked():
			return cmp.Compare(naming.Rank(p.group(), &a.Intent), naming.Rank(p.group(), &b.Intent))
		case a.EndedUnasked():
			return -1
		}
		return 1
	})
	fresh := lacking - p.ending() - p.countUnfixed(false)
	why, message := p.below()
	for n := range max(0, lacking) {
		switch {
		case n >= len(ended) && n >= fresh:
			return out
		case n >= len(ended):
			out = append(out, Action{Kind: Create, Origin: fleet.OriginMinimum, Reason: why, Message: message})
		case ended[n].EndedUnasked():
			out = append(out, p.replacement(ended[n]))
		default:
			out = append(out, Action{Kind: Restart, Instance: ended[n], Reason: why, Message: message})
		}
	}
	return out
}
