package plan

import (
	"iter"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// deleteFinished deletes the records of finished instances: at once in a deleted group, else when
// they are old or too many. It keeps those of a static group, whose data is stored under
// their names.
func (p *pass) deleteFinished() {
	g := p.group()
	if g != nil && !g.Deleting && g.Spec.Static.Enabled {
		return
	}
	done := p.finished()
	spared := p.spared(done)
	for n, i := range done[:min(len(done), p.in.Limits.Batch)] {
		due := i.FinishedAt().Add(p.in.Limits.KeepFor)
		if n < len(done)-p.in.Limits.KeepRecords { // too many: as soon as the back-off no longer needs it
			due = earliest(due, spared[i.Intent.ID])
		}
		switch {
		case g != nil && g.Deleting:
			p.deleteInstance(i, fleet.ReasonGroupDeleted)
		case !due.After(p.now):
			p.deleteInstance(i, fleet.ReasonRetention)
		default:
			p.wakeAt(due)
		}
	}
}

func (p *pass) deleteInstance(i *fleet.Instance, why fleet.Reason) {
	p.act(Action{Kind: DeleteInstance, Instance: i, Reason: why, Message: why.Text()})
}

// finished returns the instances that need nothing more, in order of their end.
func (p *pass) finished() []*fleet.Instance {
	var done []*fleet.Instance
	for _, i := range p.all {
		if i.Terminal() && !i.HoldsNode() && !p.busy[i.Intent.ID] && !p.awaited(i) {
			done = append(done, i)
		}
	}
	slices.SortStableFunc(done, func(a, b *fleet.Instance) int { return a.FinishedAt().Compare(b.FinishedAt()) })
	return done
}

// awaited reports whether a finished instance still gets a replacement or a next
// generation, prevents one, or is frozen.
func (p *pass) awaited(i *fleet.Instance) bool {
	g := p.group()
	if g == nil || g.Deleting {
		return false
	}
	return i.Intent.RestartPending || i.Intent.Frozen ||
		g.Spec.Scaling.Mode != fleet.ScalingManual && (p.needsHealing(i) || p.agentLeaves(i) || p.own(i) && p.unfixed(i))
}

// spared returns the latest crashed instances and until when the back-off needs them. Until
// then, KeepRecords does not apply to them.
func (p *pass) spared(done []*fleet.Instance) map[fleet.InstanceID]time.Time {
	out := map[fleet.InstanceID]time.Time{}
	for _, i := range slices.Backward(done) {
		if len(out) == p.in.Limits.CrashLimit {
			break
		}
		crashes := i.Crashes()
		if len(crashes) == 0 {
			continue
		}
		if until := crashes[len(crashes)-1].Add(p.in.Limits.CrashWindow); until.After(p.now) {
			out[i.Intent.ID] = until
		}
	}
	return out
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Plans returns actions that delete stored plans, keyed by digest, that have been
// unreferenced for a while. referenced reports whether any intent or placement names a
// digest. wake is when the next one may become due.
func Plans(stored iter.Seq2[string, *fleet.StoredPlan], referenced func(digest string) bool, l Limits, now time.Time) (actions []Action, wake time.Time) {
	for digest, s := range stored {
		if referenced(digest) {
			continue
		}
		due := s.TouchedAt.Add(l.PlanFor)
		if due.After(now) {
			if wake.IsZero() || due.Before(wake) {
				wake = due
			}
			continue
		}
		actions = append(actions, Action{
			Kind: DeletePlan, Digest: digest, Group: s.Plan.Group,
			Reason: fleet.ReasonRetention, Message: fleet.ReasonRetention.Text(),
		})
	}
	return actions, wake
}
