package scaling

import (
	"fmt"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/scalepolicy"
)

// Metrics are the figures of a group that its policies see.
type Metrics struct {
	Players int `json:"players"`
	// Slots is how many players the instances can have that take players, and Free how many more may
	// join. Both are 0 if the slots of an instance are unknown.
	Slots int `json:"slots"`
	Free  int `json:"free"`
	// Instances counts those that run or are about to run, and Ready those that run and take players.
	Instances int `json:"instances"`
	Ready     int `json:"ready"`
	Min       int `json:"min"`
	Max       int `json:"max"`
	// TPS is the lowest number of ticks per second that an instance with players reports, 20 if none does.
	TPS float64 `json:"tps"`
}

// usualTPS is the number of ticks per second of a healthy server.
const usualTPS = 20

// MetricsOf returns the figures of a group whose load is that of its running instances. count is how
// many instances run or are about to run, and tps the lowest report; 0 for none.
func MetricsOf(s *fleet.GroupSpec, running Load, count int, tps float64) Metrics {
	m := Metrics{Players: running.Players, Instances: count, Ready: running.Instances, Min: s.Scaling.Min, Max: s.Scaling.Max, TPS: tps}
	if m.TPS <= 0 {
		m.TPS = usualTPS
	}
	if !running.Unlimited {
		m.Slots, m.Free = running.Slots, max(0, running.Slots-running.Players)
	}
	return m
}

// Slower returns the lower of tps and the ticks per second of an instance. Instances without players do
// not count. 0 means unknown.
func Slower(tps float64, i Instance) float64 {
	if i.Players > 0 && i.TPS > 0 && (tps == 0 || i.TPS < tps) {
		return i.TPS
	}
	return tps
}

// Answer is what a policy asks for.
type Answer struct {
	// Instances is the number. Given is false if the policy asks for none.
	Instances int
	Given     bool
	// Message says why.
	Message string
	// Until is when the answer may change although the figures do not; zero for never.
	Until time.Time
}

// Rule is a policy that can be asked.
type Rule struct {
	Name string
	// Ask is a pure function of the figures and the time of day.
	Ask func(Metrics, time.Time) Answer
}

// Verdict is what the policies of a group ask for together. Its Instances are within the group's limits.
type Verdict struct {
	Answer
	// Policy is the one that decided.
	Policy string
	// Alone is true if the load does not count.
	Alone bool
}

// Reason returns why the number applies, as a sentence.
func (v Verdict) Reason() string {
	return fmt.Sprintf("policy %s asks for %d instances: %s", v.Policy, v.Instances, v.Message)
}

// Ask asks the policies of a group. Given is false if none has a number.
func Ask(s *fleet.GroupSpec, rules []Rule, m Metrics, wall time.Time) (v Verdict) {
	var until time.Time
	for _, r := range rules {
		a := r.Ask(m, wall)
		if !a.Until.IsZero() && (until.IsZero() || a.Until.Before(until)) {
			until = a.Until
		}
		if !a.Given || v.Given && (v.Alone || a.Instances <= v.Instances) {
			continue
		}
		v = Verdict{Answer: a, Policy: r.Name, Alone: s.Scaling.Combine == scalepolicy.Chain}
	}
	v.Until = until
	if !v.Given {
		return v
	}
	v.Instances = min(max(v.Instances, s.Scaling.Min), s.Scaling.Max)
	return v
}
