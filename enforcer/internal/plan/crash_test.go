package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
	"github.com/orreryhq/orrery/libs/fleet/reports"
)

// loops returns a group of one whose instance crashes.
func loops(t *testing.T) *sim {
	t.Helper()
	s := newSim()
	s.group.Spec.Scaling.Min = 1
	return s
}

// crash ends the living instance and plans.
func (s *sim) crash(now time.Time) ([]Action, time.Time) {
	for _, i := range s.instances {
		if i.Living(false) {
			s.edit(i, crashed(now))
		}
	}
	return s.step(now)
}

// step plans and applies the plan.
func (s *sim) step(now time.Time) ([]Action, time.Time) {
	actions, wake := Group(s.input(), now)
	s.apply(actions, now)
	return actions, wake
}

func TestBackoff(t *testing.T) {
	s := loops(t)
	s.add(online)
	if got, _ := s.crash(at(0)); short(got) != "create minimum for i00001: Replacement" {
		t.Fatalf("the first crash is not healed at once: %s", short(got))
	}
	got, wake := s.crash(at(10 * time.Second))
	if len(got) != 0 || !wake.Equal(at(11*time.Second)) {
		t.Fatalf("the second crash: %s, wake %v, want nothing for a second", short(got), wake)
	}
	if got, _ = s.step(wake); short(got) != "create minimum for i00002: Replacement" {
		t.Fatalf("after the delay: %s", short(got))
	}
	got, wake = s.crash(at(20 * time.Second))
	if short(got) != "set_crash_loop level 1 for 1m20s: CrashLoop" || !wake.Equal(at(80*time.Second)) {
		t.Fatalf("the third crash: %s, wake %v", short(got), wake)
	}
	if got, _ = s.step(at(79 * time.Second)); len(got) != 0 {
		t.Fatalf("while paused: %s", short(got))
	}
	if got, _ = s.step(at(80 * time.Second)); short(got) != "create minimum for i00003: Replacement" {
		t.Fatalf("after the pause: %s", short(got))
	}
	if got, _ = s.crash(at(90 * time.Second)); short(got) != "create minimum for i00004: Replacement" {
		t.Fatalf("the first crash after a pause is not healed at once: %s", short(got))
	}
}

func TestAParentsChangeBeforeAPauseDoesNotEndIt(t *testing.T) {
	s := loops(t)
	parent := fleet.Group{Name: "parent", Revision: 1, UpdatedAt: at(-time.Hour)}
	change := func(now time.Time) { // as the gateway does: in a new record
		parent.Revision, parent.UpdatedAt = parent.Revision+1, now
		changed := parent
		s.ancestors = []*fleet.Group{&changed}
	}
	s.add(online)
	s.crash(at(0))
	change(at(5 * time.Second))
	if got, _ := s.crash(at(10 * time.Second)); short(got) != "create minimum for i00002: Replacement" {
		t.Fatalf("the first crash after the change is not healed at once: %s", short(got))
	}
	_, wake := s.crash(at(20 * time.Second))
	if s.loop != nil {
		t.Fatalf("a crash under the parent as it was counts to a pause: %+v", s.loop)
	}
	s.step(wake)
	got, end := s.crash(at(30 * time.Second))
	if short(got) != "set_crash_loop level 1 for 1m30s: CrashLoop" {
		t.Fatalf("the third crash after the change: %s", short(got))
	}
	for _, now := range []time.Time{at(31 * time.Second), end.Add(-time.Second)} {
		if got, wake := s.step(now); len(got) != 0 || !wake.Equal(end) {
			t.Fatalf("while paused: %s, wake %v", short(got), wake)
		}
	}
	change(end.Add(-time.Second))
	if got, _ := s.step(end.Add(-time.Second)); short(got) != "create minimum for i00004: Replacement" {
		t.Fatalf("after a change in the pause: %s", short(got))
	}
}

// crashLoop crashes the group until it is paused, and returns the end of the pause.
func (s *sim) crashLoop(t *testing.T, now time.Time) time.Time {
	t.Helper()
	for range 2 * s.limits.CrashLimit {
		actions, wake := s.crash(now)
		if len(actions) > 0 && actions[0].Kind == SetCrashLoop {
			return actions[0].Loop.PausedUntil
		}
		if s.living() == 0 {
			now = wake
			s.step(now)
		}
	}
	t.Fatalf("never paused: %+v", s.instances)
	return time.Time{}
}

func TestPausesDoubleToAnHourAndStartAnewAfterAQuietTime(t *testing.T) {
	s := loops(t)
	s.add(online)
	now := at(0)
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		end := s.crashLoop(t, now)
		began := end.Add(-want * time.Minute)
		if began.Before(now) || began.After(now.Add(5*time.Second)) {
			t.Fatalf("paused from %v until %v, want %d minutes", now, end, want)
		}
		s.step(end)
		now = end.Add(time.Second)
	}
	quiet := now.Add(2*time.Hour - time.Second)
	if _, wake := s.step(quiet.Add(-time.Second)); !wake.Equal(quiet) {
		t.Errorf("wakes at %v, want at the end of the quiet time %v", wake, quiet)
	}
	if got, _ := s.step(quiet); len(got) == 0 || got[0].Kind != ClearCrashLoop {
		t.Errorf("after a quiet time: %s", short(got))
	}
	if end := s.crashLoop(t, quiet); end.Sub(quiet) > 2*time.Minute {
		t.Errorf("paused for %v after a quiet time, want the first level", end.Sub(quiet))
	}
}

func TestAStaticInstanceRemembersItsCrashes(t *testing.T) {
	s := loops(t)
	s.group.Spec.Static.Enabled = true
	s.add(online)
	if end := s.crashLoop(t, at(0)); len(s.instances) != 1 || s.instances[0].Intent.Generation != 3 {
		t.Errorf("paused until %v with %+v, want one instance in its third generation", end, s.instances[0].Intent)
	}
}

func TestWhatEndsAPauseAndWhatDoesNotCount(t *testing.T) {
	loop := &crashloop.Loop{
		Group: "g", GroupRevision: 1, Ancestors: map[fleet.GroupName]int64{"parent": 1}, Level: 1,
		Since: at(-30 * time.Second), PausedAt: at(-10 * time.Second), PausedUntil: at(time.Minute),
	}
	tests := []struct {
		rule  string
		setup func(*sim)
		wake  time.Duration
		want  []string
	}{
		{"nothing is started in a pause", func(s *sim) {
			s.loop = loop
		}, time.Minute, nil},
		{"a pause stops no stop", func(s *sim) {
			s.loop, s.group.Spec.Scaling.Min = loop, 0
			s.add(online)
		}, 11 * time.Minute, []string{"stop i00001 by stop: ScaledDown"}},
		{"a restart somebody asked for is no start of ours", func(s *sim) {
			s.loop = loop
			s.add(manual, in(alive, fleet.Stopped, fleet.ReasonStopRequested, at(0)), wantsStop(false),
				func(i *fleet.Instance) { i.Intent.RestartPending = true })
		}, 11 * time.Minute, []string{"again i00001: Restart"}},
		{"a changed spec ends the pause", func(s *sim) {
			s.loop, s.group.Revision, s.group.UpdatedAt = loop, 2, at(-time.Second)
		}, 10*time.Minute - time.Second, []string{"create minimum: BelowMinimum"}},
		{"a changed parent ends the pause", func(s *sim) {
			s.loop, s.ancestors = loop, []*fleet.Group{{Name: "parent", Revision: 2, UpdatedAt: at(-time.Second)}}
		}, 10*time.Minute - time.Second, []string{"create minimum: BelowMinimum"}},
		{"a parent that was changed before the pause does not end it", func(s *sim) {
			s.loop, s.ancestors = loop, []*fleet.Group{{Name: "parent", Revision: 1, UpdatedAt: at(-20 * time.Second)}}
		}, time.Minute, nil},
		{"a changed parent ends the pause also by a clock that is behind", func(s *sim) {
			s.loop, s.ancestors = loop, []*fleet.Group{{Name: "parent", Revision: 2, UpdatedAt: at(-time.Hour)}}
			for range 3 {
				s.add(crashed(at(-20 * time.Second)))
			}
		}, 10*time.Minute - 10*time.Second, []string{"create minimum for i00001: Replacement"}},
		{"crashes from before a parent's change do not count after it", func(s *sim) {
			s.loop, s.ancestors = loop, []*fleet.Group{{Name: "parent", Revision: 2, UpdatedAt: at(-time.Second)}}
			for range 3 {
				s.add(crashed(at(-time.Minute)))
			}
		}, 10*time.Minute - time.Second, []string{"create minimum for i00001: Replacement"}},
		{"a parent that was changed by a clock that is ahead hides no crash", func(s *sim) {
			s.ancestors = []*fleet.Group{{Name: "parent", Revision: 2, UpdatedAt: at(time.Hour)}}
			for range 3 {
				s.add(crashed(at(-time.Second)))
			}
		}, time.Minute, []string{"set_crash_loop level 1 for 1m0s: CrashLoop"}},
		{"crashes under the old spec do not count under the new one", func(s *sim) {
			s.loop, s.group.Revision, s.group.UpdatedAt = loop, 2, at(-time.Second)
			for range 3 {
				s.add(crashed(at(-time.Minute)))
			}
		}, 10*time.Minute - time.Second, []string{"create minimum for i00001: Replacement"}},
		{"crashes of an older revision neither pause nor delay its cure, whenever they are", func(s *sim) {
			s.group.Revision, s.group.UpdatedAt = 2, at(-time.Hour)
			for n := range 4 {
				s.add(crashed(at(-time.Duration(n) * time.Second)))
			}
		}, keep - 3*time.Second, []string{"create minimum for i00001: Replacement"}},
		{"old crashes do not count", func(s *sim) {
			for n := range 3 {
				s.add(crashed(at(-5*time.Minute - time.Duration(n)*time.Second)))
			}
		}, 55*time.Minute - 2*time.Second, []string{"create minimum for i00001: Replacement"}},
		{"lost and rebooted nodes are no crashes", func(s *sim) {
			for range 3 {
				s.add(in(lost, fleet.Crashed, fleet.ReasonNodeRebooted, at(0)))
			}
		}, keep, []string{"create minimum for i00001: Replacement"}},
		{"stops that ended badly are no crashes", func(s *sim) {
			for range 3 {
				s.add(crashed(at(0)), wantsStop(false))
			}
		}, keep, []string{"create minimum: BelowMinimum"}},
		{"a host whose clock is ahead delays nothing for long", func(s *sim) {
			s.add(crashed(at(time.Hour)))
			s.add(crashed(at(time.Hour)))
		}, time.Second, nil},
		{"a host whose clock is behind does not hide its crashes", func(s *sim) {
			for range 3 {
				s.add(createdAt(at(-time.Second)), crashed(at(-time.Hour)))
			}
		}, time.Minute, []string{"set_crash_loop level 1 for 1m0s: CrashLoop"}},
		{"no pause where nothing would be started", func(s *sim) {
			s.group.Spec.Scaling.Min = 0
			for range 3 {
				s.add(crashed(at(0)))
			}
		}, keep, nil},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			s := loops(t)
			tt.setup(s)
			s.expect(t, at(0), tt.wake, tt.want...)
		})
	}
}

func TestDoubled(t *testing.T) {
	l := DefaultLimits()
	for n, want := range []time.Duration{0, 0, time.Second, 2 * time.Second, 4 * time.Second} {
		if got := l.backoff(n); got != want {
			t.Errorf("backoff(%d) = %v, want %v", n, got, want)
		}
	}
	if got := l.backoff(1 << 30); got != l.BackoffMax {
		t.Errorf("backoff of many = %v, want %v", got, l.BackoffMax)
	}
}

func TestAResetEndsAPauseAndStartsTheLevelsAnew(t *testing.T) {
	s := loops(t)
	s.add(online)
	end := s.crashLoop(t, at(0))
	s.step(end)
	end = s.crashLoop(t, end.Add(time.Second))
	reset := end.Add(-90 * time.Second)
	s.group.CrashesResetAt = reset
	if got, _ := s.step(reset.Add(time.Second)); len(got) != 2 || got[0].Kind != Create || got[1].Kind != ClearCrashLoop {
		t.Fatalf("after a reset: %s", short(got))
	}
	next := s.crashLoop(t, reset.Add(2*time.Second))
	if s.loop.Level != 1 {
		t.Errorf("the next pause, until %v, is of level %d", next, s.loop.Level)
	}
}

func TestWhatTheGroupIsNotAtFaultForDelaysAndNeverPauses(t *testing.T) {
	for _, why := range []fleet.Reason{fleet.ReasonTemplateMissing, fleet.ReasonTemplateFetch, fleet.ReasonArtifactFetch, fleet.ReasonImageFetch, fleet.ReasonSecretMissing, fleet.ReasonDiskFull, fleet.ReasonRuntimeMissing, fleet.ReasonNodePolicy} {
		s := loops(t)
		now := at(0)
		s.step(now)
		for range 3 * s.limits.CrashLimit {
			for _, i := range s.instances {
				if i.Living(false) {
					s.edit(i, in(alive, fleet.Failed, why, now))
				}
			}
			got, wake := s.step(now)
			if len(got) != 0 || !wake.Equal(now.Add(s.limits.SetbackFor)) {
				t.Fatalf("%s: %s, wake %v", why, short(got), wake)
			}
			now = wake
			s.step(now)
		}
		if s.loop != nil {
			t.Errorf("%s paused the group: %+v", why, s.loop)
		}
	}
}

func TestACommandThatDoesNotExistIsNotTriedAgainBeforeSomethingChanges(t *testing.T) {
	for rule, cure := range map[string]func(*sim){
		"the group":              func(s *sim) { s.group.Revision, s.group.UpdatedAt = s.group.Revision+1, at(2*time.Hour) },
		"what it inherits":       func(s *sim) { s.ancestors = []*fleet.Group{{Name: "base", UpdatedAt: at(2 * time.Hour)}} },
		"one of its templates":   func(s *sim) { s.republished = true },
		"its crashes were reset": func(s *sim) { s.group.CrashesResetAt = at(2 * time.Hour) },
	} {
		for _, static := range []bool{false, true} {
			s := loops(t)
			s.group.Spec.Static.Enabled = static
			s.group.Spec.Scaling.Min = 2
			s.add(in(alive, fleet.Failed, fleet.ReasonCommandMissing, at(0)))
			s.add(in(alive, fleet.Failed, fleet.ReasonNotExecutable, at(0)))
			s.add(manual, in(alive, fleet.Failed, fleet.ReasonCommandMissing, at(0)))
			for _, now := range []time.Time{at(0), at(time.Minute), at(30 * time.Minute)} {
				if got, wake := s.step(now); len(got) != 0 {
					t.Fatalf("%s, static %v, %v: %s, wake %v", rule, static, now, short(got), wake)
				}
			}
			cure(s)
			got, _ := s.step(at(2 * time.Hour))
			starts := 0
			for _, a := range got {
				if a.Kind == Create || a.Kind == Restart {
					starts++
				}
			}
			if starts == 0 {
				t.Errorf("%s changed, static %v: %s", rule, static, short(got))
			}
		}
	}
}

func TestTheMinimumIsHeldBesideAnInstanceStartedByHandWhoseCommandDoesNotExist(t *testing.T) {
	for static, want := range map[bool]string{false: "create minimum for i00001: Replacement", true: "again i00001: Replacement"} {
		s := loops(t)
		s.group.Spec.Static.Enabled = static
		s.group.Spec.Scaling.Min = 1
		s.add(crashed(at(0)))
		s.add(manual, in(alive, fleet.Failed, fleet.ReasonCommandMissing, at(0)))
		if got, _ := s.step(at(time.Minute)); short(got) != want {
			t.Errorf("static %v: %s, want %s", static, short(got), want)
		}
	}
}

func TestAStaticInstanceStartedByHandWhoseCommandDoesNotExistGetsNoSecondBesideIt(t *testing.T) {
	s := loops(t)
	s.group.Spec.Static.Enabled = true
	s.group.Spec.Scaling.Min = 1
	s.add(manual, in(alive, fleet.Failed, fleet.ReasonCommandMissing, at(0)))
	if got, _ := s.step(at(time.Minute)); len(got) != 0 {
		t.Errorf("%s", short(got))
	}
}

func TestAFrozenInstanceWhoseCommandDoesNotExistIsCountedOnce(t *testing.T) {
	s := loops(t)
	s.group.Spec.Scaling.Min = 2
	s.add(in(alive, fleet.Failed, fleet.ReasonCommandMissing, at(0)), func(i *fleet.Instance) { i.Intent.Frozen = true })
	if got, _ := s.step(at(time.Minute)); short(got) != "create minimum: BelowMinimum" {
		t.Errorf("%s", short(got))
	}
}

func TestAnotherCrashIsHealedBesideACommandThatDoesNotExist(t *testing.T) {
	s := loops(t)
	s.group.Spec.Scaling.Min = 2
	s.add(in(alive, fleet.Failed, fleet.ReasonCommandMissing, at(0)))
	s.add(online)
	s.crash(at(time.Minute)) // the second crash causes a back-off
	if got, _ := s.step(at(2 * time.Minute)); short(got) != "create minimum for i00002: Replacement" {
		t.Errorf("after the back-off: %s", short(got))
	}
}

func TestABadNodeIsBlamedAndPausesLaterWhileThereIsAnother(t *testing.T) {
	for _, c := range []struct {
		rule      string
		elsewhere bool
		crashes   int
		suspect   crashloop.Suspect
	}{{"with another node", true, 6, reports.SuspectNode}, {"on the only node", false, 3, ""}} {
		s := loops(t)
		s.add(online)
		in := s.input()
		for n := range 6 {
			now := at(time.Duration(n) * time.Second)
			for _, i := range s.instances {
				if i.Living(false) {
					s.edit(i, crashed(now))
				}
			}
			in = s.input()
			in.Elsewhere = func(fleet.NodeID) bool { return c.elsewhere }
			in.Crashes = func(yield func(*reports.Crash) bool) {
				for _, one := range []*reports.Crash{
					{Group: "g", GroupRevision: 1, Node: "n", Fingerprint: "x", At: at(0)},
					{Group: "g", GroupRevision: 1, Node: "n", Fingerprint: "y", At: at(0)},
					{Group: "h", Node: "n", Fingerprint: "z", At: at(0)},
				} {
					if !yield(one) {
						return
					}
				}
			}
			s.group.Spec.Scaling.Min = 1
			got, _ := Group(in, now)
			if paused := len(got) > 0 && got[0].Kind == SetCrashLoop; paused != (n+1 >= c.crashes) {
				t.Errorf("%s: after %d crashes %s", c.rule, n+1, short(got))
			} else if paused && got[0].Loop.Blame.Suspect != c.suspect {
				t.Errorf("%s: blames %+v", c.rule, got[0].Loop.Blame)
			}
			s.add(online)
		}
	}
}

func TestAPauseSaysWhyUntilWhenAndHowToEndIt(t *testing.T) {
	s := loops(t)
	end := s.crashLoop(t, at(0))
	for _, part := range []string{"paused after 3 crashes since ", "the last was ", " on alive: ", s.loop.PausedUntil.UTC().Format(time.RFC3339), "orrery crash reset g"} {
		if text := s.loop.Text(s.loop.PausedUntil); !strings.Contains(text, part) {
			t.Errorf("until %v: it does not say %q: %s", end, part, text)
		}
	}
}
