package machine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// script sends events to a new machine and records its state and the effects of the last event.
type script struct {
	t     *testing.T
	now   time.Time
	state machine.State
	last  []machine.Effect
}

func begin(t *testing.T) *script { return &script{t: t, now: epoch} }

func (s *script) on(events ...machine.Event) *script {
	for _, e := range events {
		s.state, s.last = machine.Step(s.state, e, s.now)
	}
	return s
}

func (s *script) did(want ...machine.Effect) *script {
	s.t.Helper()
	if diff := cmp.Diff(want, s.last); diff != "" {
		s.t.Errorf("effects (-want +got):\n%s", diff)
	}
	return s
}

func (s *script) is(phase machine.Phase, state fleet.State, reason fleet.Reason) *script {
	s.t.Helper()
	st := s.state.Status
	if s.state.Phase != phase || st.State != state || st.Reason != reason {
		s.t.Errorf("is %s, %s, %s (%s), want %s, %s, %s", s.state.Phase, st.State, st.Reason, st.Message, phase, state, reason)
	}
	return s
}

func placed(generation int64) machine.Placed {
	return machine.Placed{Placement: fleet.Placement{Instance: "aaaaaa", Name: "g-1", Group: "g", Node: "n", Generation: generation, Port: 25565}}
}

func prepared(run int, change func(*fleet.Plan)) machine.Prepared {
	p := fleet.Plan{Group: "g", OnCrash: fleet.CrashReplace}
	if change != nil {
		change(&p)
	}
	return machine.Prepared{Run: run, Plan: p, TokenHash: "hash"}
}

func restarting(p *fleet.Plan) { p.OnCrash = fleet.CrashRestart }

func order(generation int64, a fleet.OrderAction) machine.Ordered {
	return machine.Ordered{Order: fleet.Order{Generation: generation, Action: a, Reason: fleet.ReasonStopRequested}}
}

func started(run int) machine.Started { return machine.Started{Run: run, PID: 7, At: epoch} }

func exited(run, code int) machine.Exited {
	return machine.Exited{Run: run, Exit: fleet.Exit{Known: true, Code: code}, At: epoch}
}

// running is a machine whose first process runs.
func running(t *testing.T, change func(*fleet.Plan)) *script {
	return begin(t).on(placed(1), prepared(1, change), started(1))
}

func TestLife(t *testing.T) {
	s := begin(t).on(placed(1)).did(machine.Prepare{Run: 1}).is(machine.Preparing, fleet.Preparing, fleet.ReasonPreparing)
	s.on(prepared(1, nil)).did(machine.Launch{Run: 1})
	s.on(started(1)).is(machine.Online, fleet.Online, fleet.ReasonProcessStarted)
	s.on(order(1, fleet.OrderStop)).did(machine.Stop{}).is(machine.Stopping, fleet.Stopping, fleet.ReasonStopRequested)
	s.on(order(1, fleet.OrderStop)).did()
	s.on(exited(1, 0)).did(machine.Clear{}).is(machine.Ended, fleet.Stopped, fleet.ReasonStopRequested)
	s.on(machine.Removed{}).did(machine.Forget{})
}

func TestReadinessIsAwaitedAndBounded(t *testing.T) {
	slow := func(p *fleet.Plan) { p.Readiness.Type, p.StartupTimeoutSeconds = fleet.CheckPort, 30 }
	s := running(t, slow).did(machine.AwaitReady{Run: 1}, machine.Wake{Run: 1, Timer: machine.StartTimer, After: 30 * time.Second})
	s.is(machine.Starting, fleet.Starting, fleet.ReasonProcessStarted)
	s.on(machine.Ready{Run: 1}).is(machine.Online, fleet.Online, fleet.ReasonReady)
	s.on(machine.Elapsed{Run: 1, Timer: machine.StartTimer}).did().is(machine.Online, fleet.Online, fleet.ReasonReady)

	s = running(t, slow).on(machine.Elapsed{Run: 1, Timer: machine.StartTimer, Why: "nobody answers"}).did(machine.Kill{})
	s.on(exited(1, 137)).is(machine.Ended, fleet.Failed, fleet.ReasonStartTimeout)
	if got := s.state.Status.Message; got != "it was not ready within 30 s: nobody answers" {
		t.Errorf("message %q", got)
	}
}

func TestEndIsNotBeforeStart(t *testing.T) {
	end := exited(1, 127)
	end.At = epoch.Add(-3 * time.Millisecond) // it ended before its start was recorded
	s := running(t, nil).on(end).is(machine.Unconfirmed, fleet.Crashed, fleet.ReasonExited)
	if got := s.state.Status; !got.FinishedAt.Equal(got.StartedAt) {
		t.Errorf("started %v, finished %v", got.StartedAt, got.FinishedAt)
	}
	if got := s.state.Unrecorded[0]; !got.At.Equal(got.StartedAt) {
		t.Errorf("crashed %v, started %v", got.At, got.StartedAt)
	}
}

func TestUnrequestedExits(t *testing.T) {
	cases := []struct {
		name   string
		exit   fleet.Exit
		state  fleet.State
		reason fleet.Reason
	}{
		{"code 0 is a stop", fleet.Exit{Known: true}, fleet.Stopped, fleet.ReasonExitedByItself},
		{"another code is a crash", fleet.Exit{Known: true, Code: 3}, fleet.Crashed, fleet.ReasonExited},
		{"a signal is a crash", fleet.Exit{Known: true, Code: 137, Signal: "KILL"}, fleet.Crashed, fleet.ReasonKilledBySignal},
		{"an OOM kill has its own reason", fleet.Exit{Known: true, Code: 137, Signal: "KILL", OOM: true}, fleet.Crashed, fleet.ReasonOutOfMemory},
		{"an unknown exit is a crash", fleet.Exit{}, fleet.Crashed, fleet.ReasonExitUnknown},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := running(t, func(p *fleet.Plan) { p.OnCrash = fleet.CrashStop })
			s.on(machine.Exited{Run: 1, Exit: c.exit, At: epoch}).is(machine.Ended, c.state, c.reason)
			if diff := cmp.Diff(&c.exit, s.state.Status.Exit); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOutOfMemoryMessageHasLimit(t *testing.T) {
	for limit, want := range map[int]string{0: "", 512: "its memory limit of 512 MiB"} {
		s := running(t, func(p *fleet.Plan) { p.OnCrash = fleet.CrashStop })
		s.on(machine.Exited{Run: 1, Exit: fleet.Exit{Known: true, Code: 137, Signal: "KILL", OOM: true, LimitMiB: limit}, At: epoch})
		if got := s.state.Status.Message; !strings.Contains(got, want) {
			t.Errorf("a limit of %d MiB: %q", limit, got)
		}
	}
}

func TestStopInEveryPhase(t *testing.T) {
	stop := order(1, fleet.OrderStop)
	t.Run("before the placement", func(t *testing.T) {
		begin(t).on(stop).did().on(placed(1)).did(machine.Clear{}).is(machine.Ended, fleet.Stopped, fleet.ReasonStopRequested)
	})
	t.Run("nothing is started during preparation", func(t *testing.T) {
		s := begin(t).on(placed(1), stop).did(machine.Cancel{}).is(machine.Stopping, fleet.Stopping, fleet.ReasonStopRequested)
		s.on(prepared(1, nil)).did(machine.Clear{}).is(machine.Ended, fleet.Stopped, fleet.ReasonStopRequested)
	})
	t.Run("a launch is canceled and its process stopped", func(t *testing.T) {
		s := begin(t).on(placed(1), prepared(1, nil), stop).did(machine.Cancel{})
		s.on(started(1)).did(machine.Stop{}).is(machine.Stopping, fleet.Stopping, fleet.ReasonStopRequested)
	})
	t.Run("a failed launch is stopped", func(t *testing.T) {
		s := begin(t).on(placed(1), prepared(1, nil), stop)
		s.on(machine.Failed{Run: 1, Reason: fleet.ReasonStartFailed}).is(machine.Ended, fleet.Stopped, fleet.ReasonStopRequested)
	})
	t.Run("a kill overtakes a stop", func(t *testing.T) {
		running(t, nil).on(stop, order(1, fleet.OrderKill)).did(machine.Kill{})
	})
	t.Run("a stop does not soften a kill", func(t *testing.T) {
		running(t, nil).on(order(1, fleet.OrderKill), stop).did()
	})
	t.Run("during a restart pause", func(t *testing.T) {
		s := running(t, restarting).on(exited(1, 1), started(2), exited(2, 1), stop)
		s.did(machine.Clear{}).is(machine.Ended, fleet.Stopped, fleet.ReasonStopRequested)
	})
	t.Run("an order of another generation is ignored", func(t *testing.T) {
		s := begin(t).on(placed(2), prepared(1, nil), started(1))
		s.on(order(1, fleet.OrderKill)).did().on(order(3, fleet.OrderKill)).did()
		s.is(machine.Online, fleet.Online, fleet.ReasonProcessStarted)
	})
}

func TestLocalStopIsNotRestarted(t *testing.T) {
	local := machine.StoppedLocally{By: "root"}
	t.Run("a running instance stops without a crash", func(t *testing.T) {
		s := running(t, restarting).on(local).did(machine.Stop{}).is(machine.Stopping, fleet.Stopping, fleet.ReasonStoppedLocally)
		s.on(exited(1, 3)).did(machine.Clear{}).is(machine.Ended, fleet.Stopped, fleet.ReasonStoppedLocally)
		if !strings.Contains(s.state.Status.Message, "by root") {
			t.Errorf("message %q", s.state.Status.Message)
		}
	})
	t.Run("force kills it", func(t *testing.T) {
		running(t, nil).on(machine.StoppedLocally{Force: true}).did(machine.Kill{})
		running(t, nil).on(local, machine.StoppedLocally{Force: true}).did(machine.Kill{})
	})
	t.Run("a pending restart is dropped", func(t *testing.T) {
		s := running(t, nil).on(exited(1, 1), machine.StatusUnwritten{Generation: 1}, local)
		s.did(machine.Clear{}).is(machine.Ended, fleet.Stopped, fleet.ReasonStoppedLocally)
		s.on(machine.Elapsed{Run: 1, Timer: machine.RestartTimer}).did()
	})
	t.Run("an unwritten crash is not restarted", func(t *testing.T) {
		s := running(t, nil).on(exited(1, 1), local).did(machine.Clear{}).is(machine.Ended, fleet.Crashed, fleet.ReasonExited)
		s.on(machine.StatusUnwritten{Generation: 1}).did()
	})
	t.Run("a later agent continues the stop", func(t *testing.T) {
		s := running(t, nil).on(local, machine.Recovered{}).did(machine.Adopt{Run: 1})
		s.on(machine.Found{Run: 1, PID: 7}).did(machine.Stop{})
		s.on(exited(1, 0)).is(machine.Ended, fleet.Stopped, fleet.ReasonStoppedLocally)
	})
}

func TestRestartInPlace(t *testing.T) {
	s := running(t, restarting).on(exited(1, 1)).is(machine.Launching, fleet.Starting, fleet.ReasonRestartedInPlace)
	s.did(machine.Launch{Run: 2}).on(started(2)).is(machine.Online, fleet.Online, fleet.ReasonRestartedInPlace)
	if s.state.Status.Restarts != 1 {
		t.Errorf("restarts = %d", s.state.Status.Restarts)
	}
	s.on(exited(2, 1)).did(machine.Wake{Run: 2, Timer: machine.RestartTimer, After: time.Second})
	s.on(machine.Elapsed{Run: 2, Timer: machine.RestartTimer}, started(3), exited(3, 1))
	s.is(machine.Ended, fleet.Crashed, fleet.ReasonExited)
}

func TestPauseAfterRunThatWasNeverReady(t *testing.T) {
	slow := func(p *fleet.Plan) {
		restarting(p)
		p.Readiness.Type = fleet.CheckPort
	}
	s := running(t, slow).on(exited(1, 1)).is(machine.Waiting, fleet.Starting, fleet.ReasonRestartedInPlace)
	s.did(machine.Wake{Run: 1, Timer: machine.RestartTimer, After: time.Second})
	s.on(machine.Elapsed{Run: 1, Timer: machine.RestartTimer}, started(2), machine.Ready{Run: 2}, exited(2, 1))
	s.did(machine.Wake{Run: 2, Timer: machine.RestartTimer, After: 2 * time.Second})
}

func TestTransientStartFailureIsTriedThreeTimes(t *testing.T) {
	failed := func(run int, why fleet.Reason) machine.Failed {
		return machine.Failed{Run: run, Reason: why, Message: "no luck"}
	}
	over := func(run int) machine.Elapsed { return machine.Elapsed{Run: run, Timer: machine.RestartTimer} }
	s := begin(t).on(placed(1), failed(1, fleet.ReasonTemplateFetch)).is(machine.Waiting, fleet.Preparing, fleet.ReasonTemplateFetch)
	s.did(machine.Wake{Run: 1, Timer: machine.RestartTimer, After: time.Second})
	if got := s.state.Status.Message; got != "no luck; that was attempt 1 of 3, the next follows after 1s" {
		t.Error(got)
	}
	s.on(over(1)).did(machine.Prepare{Run: 2}).on(prepared(2, nil)).did(machine.Launch{Run: 2})
	s.on(failed(2, fleet.ReasonStartFailed)).did(machine.Wake{Run: 2, Timer: machine.RestartTimer, After: 2 * time.Second})
	s.on(over(2)).did(machine.Launch{Run: 3})
	again := *s
	s.on(failed(3, fleet.ReasonStartFailed)).did(machine.Clear{}).is(machine.Ended, fleet.Failed, fleet.ReasonStartFailed)

	again.on(started(3)).is(machine.Online, fleet.Online, fleet.ReasonProcessStarted)
	if again.state.Tries != 0 {
		t.Errorf("%d tries count after a start that succeeded", again.state.Tries)
	}
}

func TestPermanentStartFailureIsTriedOnce(t *testing.T) {
	for _, why := range []fleet.Reason{fleet.ReasonTemplateMissing, fleet.ReasonImageMissing, fleet.ReasonCommandMissing, fleet.ReasonPortTaken, fleet.ReasonConfigPatch} {
		begin(t).on(placed(1), machine.Failed{Run: 1, Reason: why}).did(machine.Clear{}).is(machine.Ended, fleet.Failed, why)
	}
}

func TestStartIsRetriedWhileRuntimeIsAway(t *testing.T) {
	for away, phase := range map[bool]machine.Phase{true: machine.Waiting, false: machine.Ended} {
		s := begin(t).on(placed(1), machine.Failed{Run: 1, Reason: fleet.ReasonRuntimeMissing, Away: away})
		if s.state.Phase != phase {
			t.Errorf("away %v: %s, want %s", away, s.state.Phase, phase)
		}
	}
	begin(t).on(placed(1), machine.Failed{Run: 1, Reason: fleet.ReasonImageFetch}).is(machine.Waiting, fleet.Preparing, fleet.ReasonImageFetch)
}

func TestStopEndsRestartPause(t *testing.T) {
	s := begin(t).on(placed(1), machine.Failed{Run: 1, Reason: fleet.ReasonPrepareFailed}, order(1, fleet.OrderStop))
	s.did(machine.Clear{}).is(machine.Ended, fleet.Stopped, fleet.ReasonStopRequested)
	s.on(machine.Elapsed{Run: 1, Timer: machine.RestartTimer}).did()
}

func TestPreparationAfterRebootIsRetried(t *testing.T) {
	s := running(t, restarting).on(machine.Recovered{}, machine.Lost{Run: 1, Rebooted: true}).did(machine.Prepare{Run: 2})
	s.on(machine.Failed{Run: 2, Reason: fleet.ReasonPrepareFailed}, machine.Elapsed{Run: 2, Timer: machine.RestartTimer}).did(machine.Prepare{Run: 3})
}

func TestCrashAfterWindowCountsAsFirst(t *testing.T) {
	s := running(t, restarting)
	for run := 1; run < 9; run++ {
		s.now = epoch.Add(time.Duration(run) * machine.CrashWindow)
		s.on(machine.Exited{Run: run, Exit: fleet.Exit{Known: true, Code: 1}, At: s.now}).did(machine.Launch{Run: run + 1})
		s.on(machine.Started{Run: run + 1, PID: 7, At: s.now})
	}
}

func TestLaunchShowsWaitForPort(t *testing.T) {
	s := begin(t).on(placed(1), prepared(1, nil), machine.Delayed{Run: 1, Message: "two connections"}).did()
	s.is(machine.Launching, fleet.Preparing, fleet.ReasonPortReleasing)
	s.on(started(1)).is(machine.Online, fleet.Online, fleet.ReasonProcessStarted)
	s.on(machine.Delayed{Run: 1, Message: "too late"}).is(machine.Online, fleet.Online, fleet.ReasonProcessStarted)
	s = running(t, restarting).on(exited(1, 1), machine.Delayed{Run: 2, Message: "two connections"}).did()
	s.is(machine.Launching, fleet.Starting, fleet.ReasonPortReleasing)
	s.on(order(1, fleet.OrderStop)).did(machine.Cancel{})
}

func TestUnwrittenCrashRestartsInsteadOfReplacement(t *testing.T) {
	s := running(t, nil).on(exited(1, 1)).did().is(machine.Unconfirmed, fleet.Crashed, fleet.ReasonExited)
	told := *s
	told.on(machine.StatusWritten{Generation: 1}).did(machine.Clear{}).is(machine.Ended, fleet.Crashed, fleet.ReasonExited)

	s.on(machine.StatusUnwritten{Generation: 1}).is(machine.Waiting, fleet.Starting, fleet.ReasonRestartedInPlace)
	s.on(machine.Elapsed{Run: 1, Timer: machine.RestartTimer}).did(machine.Launch{Run: 2})
	s.on(started(2)).is(machine.Online, fleet.Online, fleet.ReasonRestartedInPlace)
	if s.state.Status.TokenHash != "hash" {
		t.Error("the token was lost")
	}
}

func TestHigherGenerationWaitsForEndOfLower(t *testing.T) {
	s := running(t, nil).on(placed(2)).did(machine.Stop{})
	s.on(exited(1, 0)).did(machine.Clear{}, machine.Prepare{Run: 2}).is(machine.Preparing, fleet.Preparing, fleet.ReasonPreparing)
	if s.state.Status.Generation != 2 {
		t.Errorf("generation = %d", s.state.Status.Generation)
	}
	s.on(placed(1)).did()
}

func TestRecovery(t *testing.T) {
	t.Run("a preparation is repeated", func(t *testing.T) {
		begin(t).on(placed(1), machine.Recovered{}).did(machine.Prepare{Run: 2}).on(prepared(1, nil)).did()
	})
	t.Run("a pending launch is adopted", func(t *testing.T) {
		s := begin(t).on(placed(1), prepared(1, nil), machine.Recovered{}).did(machine.Adopt{Run: 1})
		rebooted := *s
		s.on(machine.Lost{Run: 1}).did(machine.Launch{Run: 2})
		rebooted.on(machine.Lost{Run: 1, Rebooted: true}).did(machine.Prepare{Run: 2})
	})
	t.Run("a restart in place keeps the directory", func(t *testing.T) {
		s := running(t, restarting).on(exited(1, 1), machine.Delayed{Run: 2, Message: "two connections"}, machine.Recovered{}).did(machine.Adopt{Run: 2})
		rebooted := *s
		s.on(machine.Lost{Run: 2}).did(machine.Launch{Run: 3}).is(machine.Launching, fleet.Starting, fleet.ReasonPortReleasing)
		s.on(started(3)).is(machine.Online, fleet.Online, fleet.ReasonRestartedInPlace)
		rebooted.on(machine.Lost{Run: 2, Rebooted: true}).did(machine.Prepare{Run: 3})
	})
	t.Run("a running process is adopted", func(t *testing.T) {
		s := running(t, nil).on(machine.Recovered{}).did(machine.Adopt{Run: 1})
		s.on(machine.Found{Run: 1, PID: 7}).did().is(machine.Online, fleet.Online, fleet.ReasonAdopted)
	})
	t.Run("an exit meanwhile is reported", func(t *testing.T) {
		running(t, nil).on(machine.Recovered{}, exited(1, 3)).is(machine.Unconfirmed, fleet.Crashed, fleet.ReasonExited)
	})
	t.Run("a reboot is distinguished", func(t *testing.T) {
		running(t, nil).on(machine.Recovered{}, machine.Lost{Run: 1, Rebooted: true}).is(machine.Ended, fleet.Crashed, fleet.ReasonNodeRebooted)
	})
	t.Run("a stop continues", func(t *testing.T) {
		s := running(t, nil).on(order(1, fleet.OrderStop), machine.Recovered{}).did(machine.Adopt{Run: 1})
		s.on(machine.Found{Run: 1, PID: 7}).did(machine.Stop{})
	})
	t.Run("an ended instance stays ended", func(t *testing.T) {
		running(t, nil).on(order(1, fleet.OrderStop), exited(1, 0), machine.Recovered{}).did()
	})
}

func TestShutdownStopsInstances(t *testing.T) {
	s := running(t, nil).on(machine.Shutdown{}).did(machine.Stop{})
	s.on(exited(1, 0)).is(machine.Ended, fleet.Stopped, fleet.ReasonAgentShutdown)
	s.on(placed(2)).did()
}

func TestProcessWithoutRecordKeepsRunning(t *testing.T) {
	s := running(t, nil).on(machine.Removed{}).did().is(machine.Online, fleet.Online, fleet.ReasonProcessStarted)
	s.on(exited(1, 0)).did(machine.Clear{}, machine.Forget{})
}

func TestMessageContainsNotes(t *testing.T) {
	p := prepared(1, nil)
	p.Notes = "unknown placeholder %FOO%"
	s := begin(t).on(placed(1), p, started(1))
	if got, want := s.state.Status.Message, "the process runs; unknown placeholder %FOO%"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}

func TestFinalStatusListsEveryCrash(t *testing.T) {
	s := running(t, restarting)
	for run := 1; run < machine.GiveUp; run++ {
		s.on(exited(run, 1))
		if n := len(s.state.Status.Crashes); n > 0 {
			t.Errorf("it is to run again and tells of %d crashes", n)
		}
		s.on(machine.Elapsed{Run: run, Timer: machine.RestartTimer}, started(run+1))
	}
	s.on(exited(machine.GiveUp, 1))
	if n := len(s.state.Status.Crashes); s.state.Phase != machine.Ended || n != machine.GiveUp-1 {
		t.Errorf("%s, with %d crashes before the last", s.state.Phase, n)
	}
}

func TestHostRestartIsNotCounted(t *testing.T) {
	s := running(t, restarting)
	for run := 1; run < 2*machine.GiveUp; run++ {
		s.on(machine.Recovered{}, machine.Lost{Run: run, Rebooted: true}).is(machine.Preparing, fleet.Starting, fleet.ReasonRestartedInPlace)
		s.on(prepared(run+1, restarting), started(run+1))
	}
	if s.state.Level != 0 || len(s.state.Crashes) > 0 {
		t.Errorf("level %d, crashes %v", s.state.Level, s.state.Crashes)
	}
}

func TestResumeFromRecords(t *testing.T) {
	adopt, again := machine.Adopt{Run: 1}, machine.Launch{Run: 2}
	cases := []struct {
		state  fleet.State
		asked  []machine.Effect
		found  fleet.State
		gone   fleet.State
		closer machine.Effect // the effect if nothing is found
	}{
		{fleet.Preparing, []machine.Effect{adopt}, fleet.Online, fleet.Preparing, again},
		{fleet.Starting, []machine.Effect{adopt}, fleet.Online, fleet.Crashed, machine.Clear{}},
		{fleet.Online, []machine.Effect{adopt}, fleet.Online, fleet.Crashed, machine.Clear{}},
		{fleet.Offline, []machine.Effect{adopt}, fleet.Online, fleet.Crashed, machine.Clear{}},
		{fleet.Stopping, []machine.Effect{adopt}, fleet.Stopping, fleet.Stopped, machine.Clear{}},
		{fleet.Crashed, nil, fleet.Crashed, fleet.Crashed, nil},
		{fleet.Stopped, nil, fleet.Stopped, fleet.Stopped, nil},
		{fleet.Failed, nil, fleet.Failed, fleet.Failed, nil},
	}
	for _, c := range cases {
		t.Run(string(c.state), func(t *testing.T) {
			status := fleet.Status{Instance: "aaaaaa", Generation: 1, State: c.state, TokenHash: "hash", StartedAt: epoch}
			resume := func() *script {
				s := begin(t)
				s.state = machine.Resume(placed(1).Placement, prepared(1, nil).Plan, status)
				s.state.Plan.OnCrash = fleet.CrashStop
				return s.on(machine.Recovered{}).did(c.asked...)
			}
			if s := resume().on(machine.Found{Run: 1, PID: 7}); s.state.Status.State != c.found {
				t.Errorf("found: %s, want %s", s.state.Status.State, c.found)
			}
			s := resume().on(machine.Lost{Run: 1})
			if s.state.Status.State != c.gone || c.closer != nil && (len(s.last) != 1 || s.last[0] != c.closer) {
				t.Errorf("gone: %s after %v, want %s after %v", s.state.Status.State, s.last, c.gone, c.closer)
			}
		})
	}
}

func TestLostTokenPreparesAgain(t *testing.T) {
	s := running(t, restarting)
	s.state.TokenHash = ""
	s.on(exited(1, 1)).did(machine.Prepare{Run: 2})
}

func TestClockChangesNeitherBlockNorEnd(t *testing.T) {
	slow := func(p *fleet.Plan) {
		restarting(p)
		p.Readiness.Type, p.StartupTimeoutSeconds = fleet.CheckPort, 60
	}
	after := func(s *script) time.Duration {
		for _, e := range s.last {
			if w, ok := e.(machine.Wake); ok {
				return w.After
			}
		}
		t.Errorf("no wake among %v", s.last)
		return 0
	}
	for _, ahead := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			s := running(t, slow).on(exited(1, 1))
			s.now = s.now.Add(ahead)
			if d := after(s.on(machine.Recovered{})); d < 0 || d > time.Second {
				t.Errorf("the next run in place waits %v", d)
			}
			s = running(t, slow)
			s.now = s.now.Add(ahead)
			if d := after(s.on(machine.Recovered{}, machine.Found{Run: 1, PID: 7})); d < time.Second || d > time.Minute {
				t.Errorf("readiness is overdue in %v", d)
			}
			s = running(t, slow)
			for run := 1; run < machine.GiveUp; run++ {
				end := exited(run, 1)
				end.At, end.Ran = epoch.Add(time.Duration(run)*ahead), time.Second
				s.on(end, machine.Elapsed{Run: run, Timer: machine.RestartTimer}, started(run+1))
			}
			if s.state.Level != machine.GiveUp-1 {
				t.Errorf("counted %d crashes in a row, want %d", s.state.Level, machine.GiveUp-1)
			}
		})
	}
}
