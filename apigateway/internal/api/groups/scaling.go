package groups

import (
	"cmp"
	"fmt"
	"reflect"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/api/instances"
	"github.com/orreryhq/orrery/libs/autoscale"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/scalepolicy"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
	"github.com/orreryhq/orrery/libs/store/view"
)

// scalingState says how many instances a group shall have, and why it has fewer.
type scalingState struct {
	// Automatic is true if the load of the group changes the number of instances. If it is false,
	// Message says which field prevents it.
	Automatic bool   `json:"automatic"`
	Message   string `json:"message"`
	// Target is how many instances the group shall have, and Missing how many of them are not ready.
	Target  int `json:"target"`
	Missing int `json:"missing"`
	// HeldBy is what keeps the group from its target, or from the number that its load needs. It is
	// null if nothing does.
	HeldBy *heldBy `json:"heldBy"`
	// Slots is how many players the instances that take players can have together.
	Slots int `json:"slots"`
	// Last is the latest change because of the load, or null.
	Last *scaled `json:"last"`
	// CooldownUntil is when the load may change the number next. It is null if that is now.
	CooldownUntil *time.Time `json:"cooldownUntil"`
}

type heldBy struct {
	Reason  fleet.Reason `json:"reason"`
	Message string       `json:"message"`
}

type scaled struct {
	From    int          `json:"from"`
	To      int          `json:"to"`
	At      time.Time    `json:"at"`
	Reason  fleet.Reason `json:"reason"`
	Message string       `json:"message"`
	// Policy is the policy that decided. It is empty for the load.
	Policy string `json:"policy"`
}

func scalingOf(s *view.Snapshot, g *fleet.Group, now time.Time) scalingState {
	g = s.Overlaid(g)
	l := loadOf(s, g)
	out := scalingState{Target: s.Target(g), Slots: l.running.Slots, Missing: l.missing}
	out.Automatic, out.Message = scaling.Automatic(&g.Spec)
	last, _ := s.Scalings.Get(g.Name)
	if last != nil {
		out.Last = &scaled{From: last.From, To: last.To, At: last.At, Reason: last.Reason, Message: last.Message, Policy: last.Policy}
	}
	if ends := cooldownEnd(g, last); out.Automatic && ends.After(now) {
		out.CooldownUntil = &ends
	}
	if out.Missing > 0 {
		out.HeldBy = holds(s, g, l, now)
	} else if why, message := l.coming.Needs(&g.Spec.Scaling); out.Automatic && why != "" {
		out.HeldBy = limits(s, g, out, message)
	}
	return out
}

// cooldownEnd returns when the cooldown of a group ends; zero if there was no change.
func cooldownEnd(g *fleet.Group, last *scaling.Decision) time.Time {
	from := g.ScaledAt
	if last != nil && last.At.After(from) {
		from = last.At
	}
	if from.IsZero() {
		return from
	}
	return from.Add(time.Duration(g.Spec.Scaling.CooldownSeconds) * time.Second)
}

// groupLoad is the load of a group.
type groupLoad struct {
	// running is the load of the instances that are ONLINE, and coming that including those that the
	// group is about to have.
	running, coming scaling.Load
	// living is how many instances count, and missing how many of the target are not ready.
	living, missing int
	// tps is the lowest number of ticks per second that an instance with players reports; 0 for none.
	tps float64
	// behind is an instance that counts and is not ready, or nil: the first that waits for a node,
	// or else the first.
	behind *fleet.Instance
}

// playersOf returns how many players an instance of a group takes, which the group may inherit.
func playersOf(s *view.Snapshot, g *fleet.Group) int { return s.Whole(g).Spec.Players.Max }

func loadOf(s *view.Snapshot, g *fleet.Group) (l groupLoad) {
	ready, usual := 0, playersOf(s, g)
	for i := range s.GroupInstances(g.Name) {
		counts := i.Living(g.Spec.KeepsLost())
		if counts {
			l.living++
		}
		switch {
		case i.State() == fleet.Online && i.Intent.Desired == fleet.DesiredRunning:
			r := instances.ReportOf(s, i)
			claims, _ := s.Claims.Get(i.Intent.ID)
			players := max(r.Players, claims.Slots(i, cmp.Or(r.MaxPlayers, usual)))
			one := scaling.Instance{Players: players, MaxPlayers: r.MaxPlayers, TPS: r.TPS, Closed: !i.TakesPlayers()}
			l.running, l.tps = l.running.With(1, one, usual), scaling.Slower(l.tps, one)
			if i.TakesPlayers() {
				ready++
			}
		case counts && i.State() == fleet.Sleeping:
			ready++
		case counts && (l.behind == nil || i.State() == fleet.Unplaced && l.behind.State() != fleet.Unplaced):
			l.behind = i
		}
	}
	target := s.Target(g)
	l.coming = l.running.With(max(0, max(l.living, target)-l.running.Instances), scaling.Instance{}, usual)
	if s.Overlaid(g).Spec.Scaling.Mode != fleet.ScalingManual {
		l.missing = max(0, target-ready)
	}
	return l
}

// holds returns why instances of a group are missing, or nil if they are about to start.
func holds(s *view.Snapshot, g *fleet.Group, l groupLoad, now time.Time) *heldBy {
	if waits := unmet(s, g); waits != "" && l.behind == nil {
		return &heldBy{fleet.ReasonDependencyMissing, waits}
	}
	if s.MaintenanceOf(g).On && l.behind == nil {
		return &heldBy{fleet.ReasonMaintenance, "the group, or all groups, are in maintenance: nothing starts before it ends"}
	}
	if loop, ok := s.CrashLoops.Get(g.Name); ok && l.behind == nil {
		if ends := loop.EndsAt(g, compose.Ancestors(g, s.Groups.Get)); now.Before(ends) {
			return &heldBy{fleet.ReasonCrashLoop, loop.Text(ends)}
		}
	}
	if l.behind != nil {
		why, message := l.behind.Why()
		return &heldBy{why, fmt.Sprintf("%s is %s: %s", l.behind.Intent.Name, l.behind.State(), message)}
	}
	for i := range s.GroupInstances(g.Name) {
		switch why, message := i.Why(); {
		case i.Unrunnable() && i.Intent.GroupRevision == g.Revision:
			return &heldBy{why, fmt.Sprintf("%s is not restarted until the group changes: %s", i.Intent.Name, message)}
		case i.Intent.Frozen && i.Terminal():
			return &heldBy{why, fmt.Sprintf("%s is frozen and keeps its place: %s", i.Intent.Name, message)}
		}
	}
	return nil
}

// limits returns why a group gets no more instances although its load needs them.
func limits(s *view.Snapshot, g *fleet.Group, state scalingState, message string) *heldBy {
	switch {
	case state.Target >= g.Spec.Scaling.Max:
		return &heldBy{fleet.ReasonAtMaximum, fmt.Sprintf("%s, but maxInstances is %d: raise it", message, g.Spec.Scaling.Max)}
	case s.MaintenanceOf(g).On:
		return &heldBy{fleet.ReasonMaintenance, message + ", but nothing starts before the maintenance ends"}
	case state.CooldownUntil != nil:
		return &heldBy{fleet.ReasonCooldown, fmt.Sprintf("%s, but the last change is too recent: scaleCooldownSeconds is %d", message, g.Spec.Scaling.CooldownSeconds)}
	}
	return nil
}

// scalingNotes says what the rules of a changed group make of its load.
func scalingNotes(s *view.Snapshot, before, after *fleet.Group, now time.Time) []string {
	is, why := scaling.Automatic(&after.Spec)
	if !is {
		if before == nil {
			return nil
		}
		if was, _ := scaling.Automatic(&before.Spec); was {
			return []string{"the load would no longer change the number of instances: " + why}
		}
		return nil
	}
	if before != nil && reflect.DeepEqual(before.Spec.Scaling, after.Spec.Scaling) && playersOf(s, before) == playersOf(s, after) && before.Spec.Static.Enabled == after.Spec.Static.Enabled {
		return nil
	}
	l, rules := loadOf(s, after), &after.Spec.Scaling
	notes := policyNotes(after, l, now)
	_, message := l.coming.Needs(rules)
	if message == "" {
		return notes
	}
	n := l.coming.Missing(rules, playersOf(s, after), max(0, rules.Max-max(l.living, s.Target(after))))
	if n == 0 {
		return append(notes, message+fmt.Sprintf(", but maxInstances is %d", rules.Max))
	}
	return append(notes, fmt.Sprintf("%d more instances would start because of the load, after the cooldown: %s", n, message))
}

// policyNotes says what the policies of a group ask for now. Webhooks are not called.
func policyNotes(g *fleet.Group, l groupLoad, now time.Time) []string {
	var notes []string
	metrics := scaling.MetricsOf(&g.Spec, l.running, max(l.living, l.coming.Instances), l.tps)
	for _, p := range g.Spec.Scaling.Policies {
		if p.Type == scalepolicy.Webhook {
			notes = append(notes, fmt.Sprintf("policy %s would be asked every %d seconds: a dry run does not call its server", p.Name, p.IntervalSeconds))
			continue
		}
		rule, err := autoscale.Parse(p)
		if err != nil {
			continue // the write is refused
		}
		switch a := rule.Ask(metrics, now); {
		case a.Given:
			notes = append(notes, fmt.Sprintf("policy %s asks for %d instances now: %s", p.Name, a.Instances, a.Message))
		case a.Message != "":
			notes = append(notes, fmt.Sprintf("policy %s asks for no number now: %s", p.Name, a.Message))
		default:
			notes = append(notes, fmt.Sprintf("policy %s asks for no number before %s", p.Name, a.Until.UTC().Format(time.RFC3339)))
		}
	}
	return notes
}
