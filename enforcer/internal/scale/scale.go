// Package scale decides how many instances the load of a group needs: players, free slots and ticks
// per second. It is pure: it takes what the instances report and the time, and returns at most one
// decision and the instances to stop.
//
//   - Instances are added when those that run and those that are on their way together exceed a
//     limit of package scaling: as many as bring the load below it. Instances on their way count, so
//     that a load that stays the same is answered once.
//   - Instances are stopped when they have had no players for the group's scaleDownAfterSeconds and
//     the others stay below every limit without them. The youngest go first, never one that the
//     minimum needs. So a stop never causes a start.
//   - The policies of the group ask for a number. It is a lower bound in addition to the load. With the
//     combination chain it replaces the load, so that instances above it stop once they are idle.
//   - Between two decisions lies the group's cooldown.
package scale

import (
	"fmt"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
)

// MaxStops is how many instances one decision stops at most, so that it fits into one transaction.
const MaxStops = 20

// Instance is an instance that is ONLINE, that waits for a node, or that sleeps.
type Instance struct {
	scaling.Instance
	ID fleet.InstanceID
	// Waits is true if it has no node yet, or sleeps.
	Waits bool
	// IdleSince is since when it has had no players, or has waited for a node. It is zero if it must not be
	// stopped for any load.
	IdleSince time.Time
}

// Input is everything that a decision depends on.
type Input struct {
	Spec *fleet.GroupSpec
	// Decided is the target of the latest decision; 0 for none.
	Decided int
	// ChangedAt is the latest decision or explicit scale; zero for none.
	ChangedAt time.Time
	// Instances are in order of age, the oldest first.
	Instances []Instance
	// Count is how many instances count towards the target, including those on their way. Own is how
	// many of them the enforcer may stop when the minimum is lowered.
	Count, Own int
	// Rules are the policies of the group, and Wall is the time of day for them.
	Rules []scaling.Rule
	Wall  time.Time
}

// Outcome is what to do.
type Outcome struct {
	// Decision is nil if the number of instances stays. Its At is the time of the decision.
	Decision *scaling.Decision
	// Stop are the instances that the decision stops.
	Stop []fleet.InstanceID
	// Wake is when to decide again if nothing changes before; zero for never.
	Wake time.Time
}

// Decide decides for a group that scales automatically.
func Decide(in Input, now time.Time) Outcome {
	v := in.Ask()
	o, more := in.up(v, now)
	if !more {
		o = in.down(v, now)
	}
	if o.Decision == nil && v.Until.After(in.Wall) {
		o.Wake = earliest(o.Wake, now.Add(v.Until.Sub(in.Wall)))
	}
	return o
}

// Ask returns what the policies of the group ask for.
func (in Input) Ask() scaling.Verdict {
	if len(in.Rules) == 0 {
		return scaling.Verdict{}
	}
	return scaling.Ask(in.Spec, in.Rules, in.Metrics(), in.Wall)
}

// Metrics returns the figures that the policies see.
func (in Input) Metrics() scaling.Metrics {
	var tps float64
	for _, i := range in.Instances {
		tps = scaling.Slower(tps, i.Instance)
	}
	return scaling.MetricsOf(in.Spec, Running(in.Instances, in.Spec), in.count(), tps)
}

// count returns how many instances run or are about to run.
func (in Input) count() int { return max(in.Count, scaling.Target(in.Spec, in.Decided)) }

// Running returns the load of the instances that run.
func Running(all []Instance, spec *fleet.GroupSpec) scaling.Load {
	var l scaling.Load
	for _, i := range all {
		if !i.Waits {
			l = l.With(1, i.Instance, spec.Players.Max)
		}
	}
	return l
}

// up adds the instances that the load and the policies need. more reports whether they need any, even if
// the maximum or the cooldown prevents that.
func (in Input) up(v scaling.Verdict, now time.Time) (o Outcome, more bool) {
	rules, count, n := &in.Spec.Scaling, in.count(), 0
	d := scaling.Decision{From: count, At: now}
	if !v.Alone {
		load := Running(in.Instances, in.Spec)
		load = load.With(max(0, count-load.Instances), scaling.Instance{}, in.Spec.Players.Max)
		if d.Reason, d.Message = load.Needs(rules); d.Reason != "" {
			n, more = load.Missing(rules, in.Spec.Players.Max, rules.Max-count), true
		}
	}
	if v.Given && v.Instances-count > n {
		n, more = v.Instances-count, true
		d.Reason, d.Message, d.Policy = fleet.ReasonPolicy, v.Reason(), v.Policy
	}
	if n <= 0 {
		return o, more
	}
	if end := in.cooldownEnd(); end.After(now) {
		return Outcome{Wake: end}, true
	}
	d.To, d.Target = count+n, count+n
	o.Decision = &d
	return o, true
}

// down stops the idle instances that neither the load nor the policies need.
func (in Input) down(v scaling.Verdict, now time.Time) (o Outcome) {
	rules, load := &in.Spec.Scaling, Running(in.Instances, in.Spec)
	least := max(scaling.Target(in.Spec, 0), v.Instances)
	for _, i := range slices.Backward(in.Instances) {
		if in.Own-len(o.Stop) <= least || len(o.Stop) == MaxStops {
			break
		}
		without := load
		if !i.Waits {
			without = load.With(-1, i.Instance, in.Spec.Players.Max)
		}
		if why, _ := without.Exceeds(rules); why != "" && !v.Alone || i.IdleSince.IsZero() {
			continue
		}
		if due := i.IdleSince.Add(time.Duration(rules.DownAfterSeconds) * time.Second); due.After(now) {
			o.Wake = earliest(o.Wake, due)
			continue
		}
		o.Stop, load = append(o.Stop, i.ID), without
	}
	if len(o.Stop) == 0 {
		return o
	}
	if end := in.cooldownEnd(); end.After(now) {
		return Outcome{Wake: end}
	}
	d := &scaling.Decision{From: in.Count, To: in.Count - len(o.Stop), At: now, Reason: fleet.ReasonIdle}
	d.Message = fmt.Sprintf("%d of %d instances had no players for %d s and are not needed for %d players", len(o.Stop), in.Count, rules.DownAfterSeconds, load.Players)
	if v.Given {
		d.Message += "; " + v.Reason()
	}
	if v.Alone {
		d.Reason, d.Policy = fleet.ReasonPolicy, v.Policy
	}
	if in.Own-len(o.Stop) > scaling.Target(in.Spec, 0) {
		d.Target = d.To
	}
	o.Decision, o.Wake = d, time.Time{} // the decision itself leads to another look
	return o
}

// cooldownEnd returns when the next decision may be made; zero for at once.
func (in Input) cooldownEnd() time.Time {
	if in.ChangedAt.IsZero() {
		return time.Time{}
	}
	return in.ChangedAt.Add(time.Duration(in.Spec.Scaling.CooldownSeconds) * time.Second)
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
