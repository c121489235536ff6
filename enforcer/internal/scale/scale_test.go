package scale

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/scalepolicy"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
)

var now = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// spec returns a group with ten slots per instance.
func spec(least, most int) *fleet.GroupSpec {
	s := fleet.DefaultSpec()
	s.Scaling.Min, s.Scaling.Max, s.Players.Max = least, most, 10
	return &s
}

// group returns an input with one instance per number of players. Those without players are idle
// since an hour.
func group(s *fleet.GroupSpec, players ...int) Input {
	in := Input{Spec: s, Count: len(players), Own: len(players)}
	for n, p := range players {
		i := Instance{ID: fleet.InstanceID(fmt.Sprintf("i%d", n+1)), Instance: scaling.Instance{Players: p}}
		if p == 0 {
			i.IdleSince = now.Add(-time.Hour)
		}
		in.Instances = append(in.Instances, i)
	}
	return in
}

func TestSeveralAreAddedAtOnce(t *testing.T) {
	o := Decide(group(spec(0, 20), 10, 10, 10), now) // 38 slots are the least
	if d := o.Decision; d == nil || d.From != 3 || d.To != 4 || d.Target != 4 || d.Reason != fleet.ReasonFullness || !d.At.Equal(now) {
		t.Errorf("at 30 players on 30 slots: %+v", d)
	}
	s := spec(0, 20)
	s.Scaling.UpThreshold = 0.25
	if d := Decide(group(s, 10, 10, 10), now).Decision; d == nil || d.To != 13 {
		t.Errorf("at a threshold of 0.25: %+v, want 13", d)
	}
	s.Scaling.Max = 6
	if d := Decide(group(s, 10, 10, 10), now).Decision; d == nil || d.To != 6 {
		t.Errorf("with a maximum of 6: %+v", d)
	}
}

func TestTheCooldownDelaysBothDirections(t *testing.T) {
	for rule, players := range map[string][]int{"up": {10}, "down": {1, 0}} {
		in := group(spec(0, 20), players...)
		in.ChangedAt = now.Add(-59 * time.Second)
		if o := Decide(in, now); o.Decision != nil || len(o.Stop) > 0 || o.Wake.Sub(now) != time.Second {
			t.Errorf("%s: %+v, want to wait for a second", rule, o)
		}
		in.ChangedAt = now.Add(-60 * time.Second)
		if o := Decide(in, now); o.Decision == nil || !o.Wake.IsZero() {
			t.Errorf("%s: %+v, want a decision", rule, o)
		}
	}
}

func TestOneDecisionStopsABoundedNumber(t *testing.T) {
	in := group(spec(1, 100), make([]int, 50)...)
	o := Decide(in, now)
	if len(o.Stop) != MaxStops || o.Decision.To != 50-MaxStops || o.Decision.Target != 50-MaxStops {
		t.Errorf("%d stop and the decision is %+v", len(o.Stop), o.Decision)
	}
	if o.Stop[0] != "i50" {
		t.Errorf("%s stops first, want the youngest", o.Stop[0])
	}
	in = group(spec(1, 100), 0, 0, 0)
	if o := Decide(in, now); len(o.Stop) != 2 || o.Decision.To != 1 || o.Decision.Target != 0 {
		t.Errorf("%v stop and the decision is %+v, want the minimum and no target", o.Stop, o.Decision)
	}
}

// anyInput draws a group in any state of its load.
func anyInput(t *rapid.T) Input {
	s := spec(rapid.IntRange(0, 4).Draw(t, "min"), 0)
	s.Scaling.Max = s.Scaling.Min + rapid.IntRange(1, 20).Draw(t, "more")
	s.Scaling.UpThreshold = rapid.Float64Range(0.05, 1).Draw(t, "threshold")
	s.Scaling.BufferSlots, s.Scaling.BufferPercent = rapid.IntRange(0, 60).Draw(t, "slots"), rapid.IntRange(0, 99).Draw(t, "percent")
	s.Scaling.Combine = rapid.SampledFrom([]scalepolicy.Combine{"", scalepolicy.Max, scalepolicy.Chain}).Draw(t, "combine")
	in := Input{Spec: s, Decided: rapid.IntRange(0, 10).Draw(t, "decided"), Rules: anyRules(t)}
	for n := range rapid.IntRange(0, 12).Draw(t, "instances") {
		i := Instance{ID: fleet.InstanceID(fmt.Sprintf("i%d", n)), Waits: rapid.IntRange(0, 4).Draw(t, "waits") == 0}
		i.Closed = rapid.IntRange(0, 5).Draw(t, "closed") == 0
		i.MaxPlayers = rapid.SampledFrom([]int{0, 0, 4, 30}).Draw(t, "maxPlayers")
		i.TPS = rapid.SampledFrom([]float64{0, 10, 20}).Draw(t, "tps")
		if !i.Waits {
			i.Players = rapid.SampledFrom([]int{0, 0, 1, 8, 10}).Draw(t, "players")
		}
		if i.Players == 0 && !i.Closed && rapid.IntRange(0, 3).Draw(t, "stoppable") > 0 {
			i.IdleSince = now.Add(-time.Duration(rapid.IntRange(0, 600).Draw(t, "idle")) * time.Second)
		}
		if !i.Closed {
			in.Count++
		}
		if !i.IdleSince.IsZero() || !i.Closed && rapid.Bool().Draw(t, "own") {
			in.Own++
		}
		in.Instances = append(in.Instances, i)
	}
	in.Count += rapid.IntRange(0, 3).Draw(t, "starting")
	if rapid.Bool().Draw(t, "changed") {
		in.ChangedAt = now.Add(-time.Duration(rapid.IntRange(0, 120).Draw(t, "changedAt")) * time.Second)
	}
	return in
}

func TestADecisionKeepsTheLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := anyInput(t)
		o := Decide(in, now)
		if !o.Wake.IsZero() && !o.Wake.After(now) {
			t.Fatalf("wakes at %v", o.Wake)
		}
		if (o.Decision == nil || o.Decision.Up()) && len(o.Stop) > 0 {
			t.Fatalf("%v stop without a decision to", o.Stop)
		}
		if o.Decision == nil {
			return
		}
		rules := in.Spec.Scaling
		if end := in.ChangedAt.Add(time.Duration(rules.CooldownSeconds) * time.Second); end.After(now) && !in.ChangedAt.IsZero() {
			t.Fatalf("a decision in the cooldown: %+v", o.Decision)
		}
		if o.Decision.Up() {
			if o.Decision.To > rules.Max {
				t.Fatalf("%+v is above the maximum of %d", o.Decision, rules.Max)
			}
			return
		}
		if in.Own-len(o.Stop) < rules.Min {
			t.Fatalf("%d of %d stop, the minimum is %d", len(o.Stop), in.Own, rules.Min)
		}
		for _, i := range in.Instances {
			for _, id := range o.Stop {
				if id == i.ID && (i.Players > 0 || i.IdleSince.IsZero() || now.Sub(i.IdleSince) < time.Duration(rules.DownAfterSeconds)*time.Second) {
					t.Fatalf("%+v must not be stopped", i)
				}
			}
		}
	})
}

func TestADecisionLeavesNothingToDecide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := anyInput(t)
		in.ChangedAt, in.Spec.Scaling.CooldownSeconds, in.Spec.Scaling.DownAfterSeconds = time.Time{}, 0, 0
		for n := range 3 {
			o := Decide(in, now)
			if o.Decision == nil {
				return
			}
			if n > 0 && o.Decision.Up() {
				t.Fatalf("more are needed after a decision: %+v", o.Decision)
			}
			in.Decided, in.Count = o.Decision.Target, max(o.Decision.To, 0)
			in.Own += max(0, o.Decision.To-o.Decision.From) - len(o.Stop)
			stops := map[fleet.InstanceID]bool{}
			for _, id := range o.Stop {
				stops[id] = true
			}
			var left []Instance
			for _, i := range in.Instances {
				if !stops[i.ID] {
					left = append(left, i)
				}
			}
			in.Instances = left
		}
		if o := Decide(in, now); o.Decision != nil {
			t.Fatalf("still deciding: %+v", o.Decision)
		}
	})
}
