package machine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
)

// noted checks which ends are unrecorded, by id and reason.
func (s *script) noted(want ...string) *script {
	s.t.Helper()
	var got []string
	for _, c := range s.state.Unrecorded {
		got = append(got, c.ID+" "+string(c.Reason))
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("noted %v, want %v", got, want)
	}
	return s
}

func TestUnrequestedEndsStayUntilRecorded(t *testing.T) {
	s := running(t, restarting).on(exited(1, 3)).noted("aaaaaa-1-1 Exited")
	s.on(machine.Elapsed{Run: 1, Timer: machine.RestartTimer}, started(2), exited(2, 4)).noted("aaaaaa-1-1 Exited", "aaaaaa-1-2 Exited")
	s.on(machine.Recorded{ID: "aaaaaa-1-1"}).noted("aaaaaa-1-2 Exited")
	s.on(placed(2)).noted("aaaaaa-1-2 Exited")
	s.on(machine.Recorded{ID: "aaaaaa-1-2"}, machine.Recorded{ID: "aaaaaa-1-2"}).noted()
}

func TestWhichEndsAreUnrecorded(t *testing.T) {
	slow := func(p *fleet.Plan) { p.Readiness.Type, p.StartupTimeoutSeconds = fleet.CheckPort, 30 }
	running(t, nil).on(exited(1, 0)).noted("aaaaaa-1-1 ExitedByItself")
	running(t, slow).on(machine.Elapsed{Run: 1, Timer: machine.StartTimer}, exited(1, 137)).noted("aaaaaa-1-1 StartTimeout")
	running(t, nil).on(machine.Unhealthy{Run: 1, Message: "no answer"}, exited(1, 143)).noted("aaaaaa-1-1 Unhealthy")
	running(t, nil).on(order(1, fleet.OrderStop), exited(1, 143)).noted()
	running(t, nil).on(order(1, fleet.OrderKill), exited(1, 137)).noted()
	running(t, nil).on(machine.Shutdown{}, exited(1, 1)).noted()
	lost := running(t, restarting).on(machine.Recovered{})
	lost.on(machine.Lost{Run: 1, Rebooted: true}).noted()
}

func TestUnrecordedEndsAreBounded(t *testing.T) {
	s := running(t, func(p *fleet.Plan) { p.OnCrash = fleet.CrashRestart })
	for run := 1; run <= 2*machine.MaxUnrecorded; run++ {
		s.now = s.now.Add(time.Hour)
		s.on(machine.Exited{Run: run, Exit: fleet.Exit{Known: true, Code: 1}, At: s.now, Ran: time.Hour})
		s.on(machine.Elapsed{Run: run, Timer: machine.RestartTimer}, started(run+1))
	}
	if n := len(s.state.Unrecorded); n != machine.MaxUnrecorded {
		t.Errorf("%d are noted", n)
	}
}

func TestUnrunnableCommandFailsRegardlessOfOnCrash(t *testing.T) {
	missing := &machine.Refusal{Reason: fleet.ReasonCommandMissing, Message: `the command "x" does not exist`}
	for _, onCrash := range []fleet.OnCrash{fleet.CrashReplace, fleet.CrashRestart, fleet.CrashStop} {
		s := running(t, func(p *fleet.Plan) { p.OnCrash = onCrash })
		s.on(machine.Exited{Run: 1, Exit: fleet.Exit{Known: true, Code: 127}, At: epoch, Ran: time.Millisecond, Refused: missing})
		s.did(machine.Clear{}).is(machine.Ended, fleet.Failed, fleet.ReasonCommandMissing).noted("aaaaaa-1-1 CommandMissing")
		if got := s.state.Status.Message; got != `the command "x" does not exist (exit code 127)` {
			t.Error(got)
		}
	}
	s := running(t, nil)
	s.on(machine.Exited{Run: 1, Exit: fleet.Exit{Known: true, Code: 127}, At: epoch, Ran: time.Minute, Refused: missing})
	s.is(machine.Unconfirmed, fleet.Crashed, fleet.ReasonExited)
}

func TestLocalRestartKeepsCrashReason(t *testing.T) {
	for rule, s := range map[string]*script{
		"unhealthy and stopped":                      running(t, nil).on(machine.Unhealthy{Run: 1, Message: "no answer"}, exited(1, 0)),
		"unhealthy and stopped under the next agent": running(t, nil).on(machine.Unhealthy{Run: 1, Message: "no answer"}, exited(1, 0), machine.Recovered{}),
	} {
		s.on(machine.StatusUnwritten{Generation: 1}).is(machine.Waiting, fleet.Starting, fleet.ReasonRestartedInPlace)
		if got := s.state.Status.Message; got != "no answer; it is started again after 1s" {
			t.Errorf("%s: %q", rule, got)
		}
	}
}
