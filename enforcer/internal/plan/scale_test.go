package plan

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
)

func decided(target int, when time.Time) *scaling.Decision {
	return &scaling.Decision{Group: "g", Target: target, From: target - 1, To: target, At: when, Reason: fleet.ReasonFullness, Message: "because"}
}

// asking returns a policy that asks for n instances.
func asking(n int) []scaling.Rule {
	return []scaling.Rule{{Name: "p", Ask: func(scaling.Metrics, time.Time) scaling.Answer {
		return scaling.Answer{Instances: n, Given: true, Message: "it is a test"}
	}}}
}

// with adds an instance that is ONLINE and has players.
func (s *sim) with(players int, edits ...func(*fleet.Instance)) *fleet.Instance {
	i := s.add(append([]func(*fleet.Instance){online}, edits...)...)
	s.players[i.Intent.ID] = players
	return i
}

func TestScaling(t *testing.T) {
	const m = time.Minute
	stopped := func(i *fleet.Instance) {
		in(alive, fleet.Stopped, fleet.ReasonStopRequested, at(-m))(i)
		wantsStop(false)(i)
	}
	tests := []struct {
		rule  string
		setup func(*sim)
		wake  time.Duration
		want  []string
	}{
		{"a full group gets another instance once that is decided", func(s *sim) {
			s.with(80)
		}, 0, []string{"set_scaling: Fullness"}},
		{"what is decided is started", func(s *sim) {
			s.with(80)
			s.scaled = decided(2, at(0))
		}, 0, []string{"create minimum: Fullness"}},
		{"and then counts, although it is not ready", func(s *sim) {
			s.with(80)
			s.scaled = decided(2, at(-m))
			s.add(in(alive, fleet.Preparing, fleet.ReasonPreparing, at(0)))
			s.limits.PrepareFor = 0
		}, 0, nil},
		{"in the cooldown nothing is decided", func(s *sim) {
			s.with(80)
			s.scaled = decided(0, at(-20*time.Second))
		}, 40 * time.Second, nil},
		{"after an explicit scale neither", func(s *sim) {
			s.with(80)
			s.group.ScaledAt = at(-20 * time.Second)
		}, 40 * time.Second, nil},
		{"the minimum does not wait for the cooldown", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.scaled = decided(0, at(-time.Second))
		}, 0, []string{"create minimum: BelowMinimum"}},
		{"the maximum is a limit", func(s *sim) {
			s.group.Spec.Scaling.Max = 1
			s.with(100)
		}, 0, nil},
		{"MANUAL groups are left alone", func(s *sim) {
			s.group.Spec.Scaling.Mode = fleet.ScalingManual
			s.with(100)
		}, 0, nil},
		{"STATIC groups keep their minimum", func(s *sim) {
			s.group.Spec.Scaling.Mode = fleet.ScalingStatic
			s.with(100)
		}, 0, nil},
		{"so do groups with data of their own", func(s *sim) {
			s.group.Spec.Static.Enabled = true
			s.with(100)
		}, 0, nil},
		{"so do groups without a maximum", func(s *sim) {
			s.group.Spec.Scaling.Max = 0
			s.with(100)
		}, 0, nil},
		{"a decision does not survive the end of automatic scaling", func(s *sim) {
			s.group.Spec.Scaling.Mode = fleet.ScalingStatic
			s.scaled = decided(2, at(-m))
			s.with(1)
		}, 0, []string{"clear_scaling: Requested"}},
		{"nothing is decided in maintenance", func(s *sim) {
			s.group.Spec.Maintenance.On = true
			s.with(100)
		}, 0, nil},
		{"nor while a dependency is missing", func(s *sim) {
			s.unmet = true
			s.with(100)
		}, 0, nil},
		{"nor in the pause after crashes", func(s *sim) {
			s.loop = &crashloop.Loop{Group: "g", GroupRevision: 1, Level: 1, PausedUntil: at(m)}
			s.with(100)
		}, m, nil},
		{"an idle instance waits for its time", func(s *sim) {
			s.scaled = decided(2, at(-9*m))
			s.with(10)
			s.with(0)
			s.emptySince = at(-m)
		}, 4 * m, nil},
		{"then it is stopped", func(s *sim) {
			s.scaled = decided(2, at(-9*m))
			s.with(10)
			s.with(0)
			s.emptySince = at(-5 * m)
		}, 0, []string{"set_scaling: Idle", "stop i00002 by stop: Idle"}},
		{"one that has just become ready is not idle", func(s *sim) {
			s.scaled = decided(2, at(-9*m))
			s.with(10)
			s.with(0, in(alive, fleet.Online, fleet.ReasonReady, at(-m)))
		}, 4 * m, nil},
		{"the youngest idle ones go, and the minimum stays", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.scaled = decided(3, at(-9*m))
			s.with(0)
			s.with(0)
			s.with(0)
		}, 0, []string{"set_scaling: Idle", "stop i00002 by stop: Idle", "stop i00003 by stop: Idle"}},
		{"an idle instance that the load needs stays", func(s *sim) {
			s.scaled = decided(2, at(-9*m))
			s.with(85)
			s.with(0)
		}, 0, nil},
		{"a frozen one stays", func(s *sim) {
			s.scaled = decided(2, at(-9*m))
			s.with(10)
			s.with(0, func(i *fleet.Instance) { i.Intent.Frozen = true })
		}, 0, nil},
		{"so does one that was started by hand", func(s *sim) {
			s.scaled = decided(2, at(-9*m))
			s.with(10)
			s.with(0, manual)
		}, 0, nil},
		{"one that waits for a node and is no longer needed goes", func(s *sim) {
			s.scaled = decided(2, at(-9*m))
			s.with(10)
			s.add()
		}, 0, []string{"set_scaling: Idle", "stop i00002: Idle"}},
		{"a lower minimum does not stop what the load needs", func(s *sim) {
			s.scaled = decided(0, at(-time.Second))
			s.with(85)
			s.with(0)
		}, 0, nil},
		{"a buffer of free slots is filled in an empty group", func(s *sim) {
			s.group.Spec.Scaling.BufferSlots = 150
		}, 0, []string{"set_scaling: Buffer"}},
		{"and stays", func(s *sim) {
			s.group.Spec.Scaling.BufferSlots = 150
			s.scaled = decided(2, at(-9*m))
			s.with(0)
			s.with(0)
		}, 0, nil},
		{"a policy asks for more", func(s *sim) {
			s.rules = asking(3)
			s.with(1)
		}, 0, []string{"set_scaling: Policy"}},
		{"a policy keeps idle instances", func(s *sim) {
			s.rules = asking(2)
			s.scaled = decided(3, at(-9*m))
			s.with(1)
			s.with(0)
			s.with(0)
		}, 0, []string{"set_scaling: Idle", "stop i00003 by stop: Idle"}},
		{"a scale does not stop what a policy asks for", func(s *sim) {
			s.rules = asking(2)
			s.scaled = decided(0, at(-time.Second))
			s.with(0)
			s.with(0)
		}, 0, nil},
		{"slow instances get help", func(s *sim) {
			s.tps[s.with(5).Intent.ID] = 12
		}, 0, []string{"set_scaling: Degraded"}},
		{"players on a retiring instance need slots", func(s *sim) {
			s.scaled = decided(0, at(-9*m))
			s.group.Spec.Scaling.Min = 1
			s.with(50, retires(at(0)))
			s.with(40)
		}, 0, []string{"set_scaling: Fullness"}},
		{"a stopped instance of a scaled group is replaced", func(s *sim) {
			s.scaled = decided(2, at(-9*m))
			s.with(80)
			s.add(stopped)
		}, 0, []string{"create minimum: Fullness"}},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			s := newSim()
			s.limits.KeepFor, s.limits.RetireGrace = 0, 0
			tt.setup(s)
			want, got := tt.want, []Action{}
			actions, wake := Group(s.input(), at(0))
			for _, a := range actions { // what is finished is deleted, which is another matter
				if a.Kind != DeleteInstance {
					got = append(got, a)
				}
			}
			if d := short(got); d != strings.Join(want, "\n") {
				t.Errorf("actions:\n%s\nwant:\n%s", d, strings.Join(want, "\n"))
			}
			if tt.wake != 0 && wake.Sub(at(0)) != tt.wake {
				t.Errorf("wakes %v later, want %v", wake.Sub(at(0)), tt.wake)
			}
		})
	}
}

// anyLoad draws a group that scales automatically and whose load is in any state.
func anyLoad(t *rapid.T) *sim {
	s := newSim()
	r := &s.group.Spec.Scaling
	r.Min = rapid.IntRange(0, 3).Draw(t, "min")
	r.Max = rapid.IntRange(max(1, r.Min), 12).Draw(t, "max")
	r.UpThreshold = rapid.Float64Range(0.05, 1).Draw(t, "threshold")
	r.CooldownSeconds = rapid.SampledFrom([]int{0, 1, 60}).Draw(t, "cooldown")
	r.DownAfterSeconds = rapid.SampledFrom([]int{0, 5, 300}).Draw(t, "downAfter")
	if rapid.Bool().Draw(t, "buffered") {
		r.BufferSlots, r.BufferPercent = rapid.IntRange(0, 500).Draw(t, "slots"), rapid.IntRange(0, 99).Draw(t, "percent")
	}
	for range rapid.IntRange(0, 6).Draw(t, "instances") {
		i := s.with(rapid.SampledFrom([]int{0, 0, 1, 40, 80, 99}).Draw(t, "players"))
		if rapid.IntRange(0, 3).Draw(t, "by hand") == 0 {
			manual(i)
		}
		s.tps[i.Intent.ID] = rapid.SampledFrom([]float64{0, 10, 20}).Draw(t, "tps")
		i.Intent.Frozen = rapid.IntRange(0, 5).Draw(t, "frozen") == 0
	}
	return s
}

// settle plans and lets everything happen at once until nothing is due for a day, and returns the
// decisions.
func settle(t *rapid.T, s *sim, now time.Time) (all []*scaling.Decision, end time.Time) {
	until := now.Add(24 * time.Hour)
	for range 200 {
		actions, _ := s.step(now)
		for _, a := range actions {
			if a.Kind == SetScaling {
				all = append(all, a.Scaling)
			}
		}
		s.live(now)
		again, wake := Group(s.input(), now)
		if len(again) > 0 {
			continue
		}
		if wake.IsZero() || wake.After(until) {
			return all, now
		}
		now = wake
	}
	t.Fatalf("it never settles; the decisions: %d", len(all))
	return nil, now
}

func TestAConstantLoadIsAnsweredOncePerDirection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyLoad(t)
		decisions, now := settle(t, s, at(0))
		ups, downs := 0, 0
		for _, d := range decisions {
			if d.Up() {
				ups++
			} else {
				downs++
			}
		}
		// Idle instances may become stoppable one after another.
		if ups > 1 {
			t.Fatalf("%d decisions added instances, want one at most", ups)
		}
		if more, _ := settle(t, s, now.Add(time.Hour)); len(more) > 0 {
			t.Fatalf("%d more decisions after %d ups and %d downs had settled", len(more), ups, downs)
		}
	})
}

func TestScalingKeepsItsLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyLoad(t)
		rules := s.group.Spec.Scaling
		now := at(0)
		var last time.Time
		for range 30 {
			actions, wake := Group(s.input(), now)
			for _, a := range actions {
				switch {
				case a.Kind == SetScaling:
					if cooldown := time.Duration(rules.CooldownSeconds) * time.Second; !last.IsZero() && now.Sub(last) < cooldown {
						t.Fatalf("two decisions within %v", now.Sub(last))
					}
					last = now
					if d := a.Scaling; d.To > rules.Max && d.Up() || d.Target > rules.Max && d.Up() {
						t.Fatalf("the target of %d is above the maximum of %d", d.Target, rules.Max)
					}
				case a.Kind == Stop && a.Reason == fleet.ReasonIdle:
					i := a.Instance
					if s.players[i.Intent.ID] > 0 || i.Intent.Frozen || i.Intent.Origin == fleet.OriginManual || i.Retiring() {
						t.Fatalf("%s must not be stopped", i.Intent.ID)
					}
				}
			}
			before := s.living()
			s.apply(actions, now)
			if s.living() < before && s.living() < rules.Min {
				t.Fatalf("%d live, the minimum is %d", s.living(), rules.Min)
			}
			s.live(now)
			for _, i := range s.instances { // players come and go
				if i.State() == fleet.Online && rapid.IntRange(0, 3).Draw(t, "changes") == 0 {
					s.players[i.Intent.ID] = rapid.SampledFrom([]int{0, 1, 80, 100}).Draw(t, "players")
				}
			}
			s.emptySince = now
			if now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "pause")) * time.Second); !wake.IsZero() && wake.Before(now) {
				now = wake
			}
		}
	})
}
