package deployment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// Current reports whether an instance is up to date with the deployment: it was made under it or a
// later one, or a rollback restores what it runs. plan is the instance's plan, or nil. restored is
// the deployment that d restores, or nil.
func (d *Deployment) Current(i *fleet.Instance, plan *fleet.Plan, restored *Deployment) bool {
	if i.Intent.Deployment >= d.Number {
		return true
	}
	return restored != nil && plan != nil && i.Intent.Deployment == restored.Number &&
		i.Intent.GroupRevision == restored.GroupRevision && restored.hasTemplatesOf(plan)
}

// hasTemplatesOf reports whether a plan uses the versions of the deployment.
func (d *Deployment) hasTemplatesOf(plan *fleet.Plan) bool {
	return !slices.ContainsFunc(plan.Layers, func(l fleet.PlanLayer) bool {
		return !slices.ContainsFunc(d.Templates, func(h content.TemplateHead) bool { return h.TemplateRef == l.TemplateRef && h.Digest == l.Digest })
	})
}

// Step is an instance that a deployment replaces.
type Step struct {
	Instance *fleet.Instance
	// Players is the number of its players. Reason says why it has this place in the order.
	Players int
	Reason  string
}

// Steps returns the instances that a deployment has to replace, in its order: those that are not
// ready, then empty ones, then those with the fewest players; the oldest first. It leaves out
// instances that are up to date, frozen, have ended or are on a lost node.
func Steps(all []*fleet.Instance, current func(*fleet.Instance) bool, players func(*fleet.Instance) int) []Step {
	var out []Step
	for _, i := range all {
		if current(i) || !Replaceable(i) {
			continue
		}
		s := Step{Instance: i, Players: players(i)}
		switch {
		case i.Asleep():
			s.Players, s.Reason = 0, "it is asleep, so it has no players"
		case i.State() != fleet.Online:
			s.Players, s.Reason = 0, "it is not ready, so it has no players"
		case s.Players == 0:
			s.Reason = "it is empty"
		default:
			s.Reason = fmt.Sprintf("it has %d players", s.Players)
		}
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b Step) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Players, b.Players),
			cmp.Compare(a.Instance.Intent.CreateRev, b.Instance.Intent.CreateRev), a.Instance.Intent.CreatedAt.Compare(b.Instance.Intent.CreatedAt),
			cmp.Compare(a.Instance.Intent.Ordinal, b.Instance.Intent.Ordinal), strings.Compare(string(a.Instance.Intent.ID), string(b.Instance.Intent.ID)))
	})
	return out
}

func rank(s Step) int {
	if s.Instance.State() != fleet.Online {
		return 0
	}
	return 1
}

// Replaceable reports whether a deployment may replace an instance.
func Replaceable(i *fleet.Instance) bool {
	if i.Intent.Frozen || i.Lost() || i.Stranded() {
		return false
	}
	return i.Intent.RestartPending || i.Intent.Desired == fleet.DesiredRunning && !i.Terminal()
}
