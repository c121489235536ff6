// Package sleep decides which empty instances of a group are put to sleep, and which sleeping ones
// wake. It is pure.
//
//   - An ONLINE instance is put to sleep when it has had no players for the group's
//     sleepAfterEmptySeconds, unless the group needs it for its load. One whose number of players is
//     unknown stays awake.
//   - A sleeping instance wakes when a user asks for it, when something on the network asks for it,
//     or when the instances that are awake exceed a limit of package scaling. The oldest wakes first.
//   - An instance that the load needs is never put to sleep, so waking one does not lead to its sleep.
package sleep

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
	"github.com/orreryhq/orrery/libs/fleet/sleep"
)

// MaxSteps bounds the steps of one decision.
const MaxSteps = 100

// Instance is an instance that is ONLINE or asleep.
type Instance struct {
	*fleet.Instance
	// EmptySince is since when an ONLINE instance has had no players. It is zero if the instance must
	// stay awake.
	EmptySince time.Time
	// Load is what it adds to the load of its group while it is ONLINE.
	Load scaling.Instance
}

// Input is everything that a decision depends on.
type Input struct {
	Spec *fleet.GroupSpec
	// Instances are in order of age, the oldest first.
	Instances []Instance
	// Coming is how many more instances will be ONLINE soon.
	Coming int
	// Closed says that the group may start nothing now, so that only users wake instances.
	Closed bool
	// Deploying says that a deployment replaces instances, so that none is put to sleep.
	Deploying bool
}

// Step puts one instance to sleep or wakes it.
type Step struct {
	Instance *fleet.Instance
	// Wake is true if it wakes, and false if it is put to sleep.
	Wake bool
	// Message says why in a sentence. By is the user who asked for it, or empty.
	Message, By string
}

// Decide returns what to do now, and when to decide again if nothing changes before; zero for never.
func Decide(in Input, now time.Time) (steps []Step, wake time.Time) {
	d := &decision{in: in, now: now}
	d.scales, _ = scaling.Automatic(in.Spec)
	for _, i := range in.Instances {
		if !i.Asleep() {
			d.load = d.load.With(1, i.Load, in.Spec.Players.Max)
		}
	}
	d.load = d.load.With(in.Coming, scaling.Instance{}, in.Spec.Players.Max)
	d.wakeAsked()
	d.wakeForLoad()
	d.putToSleep()
	return d.steps, d.wake
}

type decision struct {
	in     Input
	now    time.Time
	scales bool
	// load is the load of the instances that are awake or come soon.
	load scaling.Load
	// asleep are the sleeping instances that are not woken.
	asleep []*fleet.Instance
	steps  []Step
	wake   time.Time
}

func (d *decision) wakes(i *fleet.Instance, by, message string) {
	d.steps = append(d.steps, Step{Instance: i, Wake: true, By: by, Message: message})
	d.load = d.load.With(1, scaling.Instance{}, d.in.Spec.Players.Max)
}

// full reports whether the decision has as many steps as it may have.
func (d *decision) full() bool { return len(d.steps) == MaxSteps }

// wakeAsked wakes the instances for which a user or something on the network asks.
func (d *decision) wakeAsked() {
	for _, i := range d.in.Instances {
		switch {
		case !i.Asleep() || d.full():
		case i.Intent.Sleep == nil:
			d.wakes(i.Instance, i.Intent.By, cmp.Or(i.Intent.Message, fleet.ReasonWoken.Text()))
		case i.Status.Wake != nil && !d.in.Closed:
			d.wakes(i.Instance, "", calledBy(i.Status.Wake))
		default:
			d.asleep = append(d.asleep, i.Instance)
		}
	}
}

// calledBy says what on the network woke an instance.
func calledBy(c *sleep.Call) string {
	switch {
	case c.Player != "":
		return fmt.Sprintf("player %s joined while it was asleep", c.Player)
	case c.Join:
		return "a player joined while it was asleep"
	}
	return "something connected to its port while it was asleep"
}

// wakeForLoad wakes as many instances as the load needs.
func (d *decision) wakeForLoad() {
	if !d.scales || d.in.Closed {
		return
	}
	why, message := d.load.Needs(&d.in.Spec.Scaling)
	if why == "" {
		return
	}
	for _, i := range d.asleep[:d.load.Missing(&d.in.Spec.Scaling, d.in.Spec.Players.Max, len(d.asleep))] {
		if !d.full() {
			d.wakes(i, "", "the load of the group needs it: "+message)
		}
	}
}

// putToSleep puts the instances to sleep that have been empty long enough, the youngest first.
func (d *decision) putToSleep() {
	after := time.Duration(d.in.Spec.Sleep.AfterEmptySeconds) * time.Second
	if after == 0 || d.in.Deploying {
		return
	}
	for _, i := range slices.Backward(d.in.Instances) {
		if i.EmptySince.IsZero() || i.Asleep() || d.full() {
			continue
		}
		without := d.load.With(-1, i.Load, d.in.Spec.Players.Max)
		if why, _ := without.Exceeds(&d.in.Spec.Scaling); d.scales && why != "" {
			continue
		}
		if due := i.EmptySince.Add(after); due.After(d.now) {
			if d.wake.IsZero() || due.Before(d.wake) {
				d.wake = due
			}
			continue
		}
		d.load = without
		d.steps = append(d.steps, Step{Instance: i.Instance, Message: because(d.in.Spec.Sleep)})
	}
}

func because(r sleep.Rules) string {
	return fmt.Sprintf("asleep because it was empty for %d s; %s", r.AfterEmptySeconds, r.WokenBy())
}
