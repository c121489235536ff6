package plan

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/enforcer/internal/rollout"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/drain"
)

// Group plans one group. wake is when to plan again if no record changes before; zero when
// no time matters.
func Group(in Input, now time.Time) (actions []Action, wake time.Time) {
	p := newPass(in, now)
	switch {
	case in.Group == nil:
	case in.Group.Deleting:
		p.deleteGroup()
	default:
		p.number()
		p.relocate()
		p.preempt()
		p.cancelMoves()
		p.resolveDuplicates()
		p.continueMoves()
		p.drain()
		p.rollOut()
		p.endRetirements()
		p.trim()
		p.scale()
		p.sleep()
		p.restart()
		p.renew()
		p.resume()
		p.heal()
		p.fillPool()
		p.clearCrashLoop()
	}
	p.all = p.every
	p.reportLost()
	p.orders()
	p.deleteFinished()
	p.removeEvictions()
	return p.actions, p.wake
}

// pass plans one group once.
type pass struct {
	in  Input
	now time.Time
	// all are the group's instances without the warm ones, oldest first. every are all of them, and pool
	// the warm ones that shall run.
	all, every, pool []*fleet.Instance
	// busy are the instances that already have an action.
	busy map[fleet.InstanceID]bool
	// stopped are the instances that this pass stops.
	stopped map[fleet.InstanceID]bool
	// replaced are the crashed or lost instances that have a replacement.
	replaced map[fleet.InstanceID]bool
	// paired are the instances that share a place while none of them may be stopped yet.
	// duplicates are all of these but the oldest of each place.
	paired, duplicates map[fleet.InstanceID]bool
	// mixed are the places with an original and its replacement by a deployment; see rollOut.
	mixed map[string]bool
	// pausing is set once this pass pauses the group after crashes.
	pausing bool
	// decided is the target of the latest decision because of the load; 0 for none.
	decided int
	// drains are the decisions about instances on draining nodes. leaves are the instances that do
	// not count because of a drain.
	drains []drain.Step
	leaves map[fleet.InstanceID]bool
	// relocated counts the instances that ended unasked and whose move this pass advances. The next pass
	// heals them.
	relocated int
	actions   []Action
	wake      time.Time
}

func newPass(in Input, now time.Time) *pass {
	p := &pass{
		in: in, now: now, all: slices.Clone(in.Instances),
		busy: map[fleet.InstanceID]bool{}, stopped: map[fleet.InstanceID]bool{}, replaced: map[fleet.InstanceID]bool{},
		paired: map[fleet.InstanceID]bool{}, duplicates: map[fleet.InstanceID]bool{},
	}
	if in.Scaled != nil {
		p.decided = in.Scaled.Target
	}
	slices.SortFunc(p.all, func(a, b *fleet.Instance) int {
		return cmp.Or(cmp.Compare(a.Intent.CreateRev, b.Intent.CreateRev), a.Intent.CreatedAt.Compare(b.Intent.CreatedAt),
			cmp.Compare(a.Intent.Ordinal, b.Intent.Ordinal),
			strings.Compare(string(a.Intent.ID), string(b.Intent.ID)))
	})
	for _, i := range p.all {
		if i.Intent.ReplacedBy != "" {
			p.replaced[i.Intent.ID] = true
		}
	}
	if in.Group != nil {
		p.mixed = rollout.Mixed(rollout.Input{Deployments: in.Deployments, Instances: p.all, Plan: in.Plan})
	}
	p.every = p.all
	p.setPoolAside()
	p.decideDrains()
	return p
}

// number gives a static group its number.
func (p *pass) number() {
	if p.in.Unnumbered && p.spec().Static.Enabled {
		p.act(Action{Kind: Number, Message: "its instances run as a user of their own"})
	}
}

// act adds an action. Each instance is in at most one.
func (p *pass) act(a Action) {
	for _, i := range []*fleet.Instance{a.Instance, a.Replaces, a.Restores} {
		if i != nil {
			p.busy[i.Intent.ID] = true
		}
	}
	p.actions = append(p.actions, a)
}

// wakeAt requests another pass at a time in the future. It ignores times in the past.
func (p *pass) wakeAt(t time.Time) {
	if t.After(p.now) && (p.wake.IsZero() || t.Before(p.wake)) {
		p.wake = t
	}
}

func (p *pass) group() *fleet.Group    { return p.in.Group }
func (p *pass) spec() *fleet.GroupSpec { return &p.in.Group.Spec }

// maintained reports whether the group is in maintenance, alone or with all others.
func (p *pass) maintained() bool { return p.in.Maintenance || p.spec().Maintenance.On }

// living reports whether an instance counts, considering the stops of this pass.
func (p *pass) living(i *fleet.Instance) bool {
	return !p.stopped[i.Intent.ID] && !p.makesWay(i) && i.Living(p.spec().KeepsLost())
}

// countLiving counts the living instances. A pair of doubles counts as one.
func (p *pass) countLiving() int {
	n := 0
	for _, i := range p.all {
		if p.living(i) && !p.duplicates[i.Intent.ID] {
			n++
		}
	}
	return n
}

// own reports whether the minimum covers an instance, for both healing and trimming. It
// does if the enforcer started the instance or if it existed at the last explicit scale.
func (p *pass) own(i *fleet.Instance) bool {
	scaled := p.group().ScaledAt
	if i.Intent.CreateRev > p.group().ModRev { // created after the scaling, whatever the clocks say
		scaled = time.Time{}
	}
	return i.Intent.Origin == fleet.OriginMinimum || !scaled.IsZero() && !i.Intent.CreatedAt.After(scaled)
}

// deleteGroup stops the remaining instances. When none is left, it deletes the group.
func (p *pass) deleteGroup() {
	for _, i := range p.all {
		if !i.Terminal() && (i.Intent.Desired == fleet.DesiredRunning || i.Intent.RestartPending) {
			p.stop(i, fleet.ReasonGroupDeleted, "group "+string(p.group().Name)+" is being deleted")
		}
	}
	if len(p.all) == 0 {
		p.act(Action{Kind: DeleteGroup, Reason: fleet.ReasonGroupDeleted, Message: "its last instance is gone"})
	}
}

// restart starts the next generation of instances with a requested restart, once they have
// ended.
func (p *pass) restart() {
	for _, i := range p.all {
		if p.busy[i.Intent.ID] || !i.Intent.RestartPending || !i.Terminal() {
			continue
		}
		a := Action{Kind: Restart, Instance: i, Reason: fleet.ReasonRestart, Message: fleet.ReasonRestart.Text()}
		if s := i.Intent.Stop; s != nil {
			a.By, a.Message = s.By, cmp.Or(s.Message, a.Message)
		}
		p.act(a)
	}
}
