package machine_test

import (
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
)

func exclusive(p *fleet.Plan) { p.Static, p.OnNodeLoss = true, fleet.NodeLossReplace }

func exclusiveRestarting(p *fleet.Plan) {
	exclusive(p)
	p.OnCrash = fleet.CrashRestart
}

func killed(run int) machine.Exited {
	return machine.Exited{Run: run, Exit: fleet.Exit{Known: true, Code: 137, Signal: "KILL"}, At: epoch, Expired: true}
}

func TestExclusiveInstanceEndsWithSession(t *testing.T) {
	cut, now := machine.Expiring{}, machine.Expiring{Force: true}
	t.Run("other instances keep running", func(t *testing.T) {
		running(t, nil).on(now).did().is(machine.Online, fleet.Online, fleet.ReasonProcessStarted)
		static := func(p *fleet.Plan) { p.Static, p.OnNodeLoss = true, fleet.NodeLossWait }
		running(t, static).on(now).did().is(machine.Online, fleet.Online, fleet.ReasonProcessStarted)
	})
	t.Run("it is stopped, then killed, and has not crashed", func(t *testing.T) {
		s := running(t, exclusiveRestarting).on(cut).did(machine.Stop{}).is(machine.Stopping, fleet.Stopping, fleet.ReasonSessionExpiring)
		s.on(cut).did().on(now).did(machine.Kill{}).on(now).did()
		s.on(killed(1)).did(machine.Clear{}).is(machine.Ended, fleet.Stopped, fleet.ReasonSessionExpiring)
	})
	t.Run("a launch is canceled and its process killed", func(t *testing.T) {
		s := begin(t).on(placed(1), prepared(1, exclusive), now).did(machine.Cancel{})
		s.on(started(1)).did(machine.Kill{}).is(machine.Stopping, fleet.Stopping, fleet.ReasonSessionExpiring)
	})
	t.Run("during adoption", func(t *testing.T) {
		s := running(t, exclusive).on(machine.Recovered{}, now).did()
		s.on(machine.Found{Run: 1, PID: 7}).did(machine.Kill{})
	})
	t.Run("a pending restart is dropped", func(t *testing.T) {
		s := running(t, exclusiveRestarting).on(exited(1, 1), started(2), exited(2, 1), cut).is(machine.Ended, fleet.Stopped, fleet.ReasonSessionExpiring)
		s.on(machine.Elapsed{Run: 2, Timer: machine.RestartTimer}).did()
	})
	t.Run("a later generation begins", func(t *testing.T) {
		s := running(t, exclusive).on(now, killed(1))
		s.on(placed(2)).did(machine.Prepare{Run: 2})
	})
}

func TestGuardKillIsReportedWithoutRestart(t *testing.T) {
	running(t, exclusiveRestarting).on(killed(1)).did(machine.Clear{}).is(machine.Ended, fleet.Stopped, fleet.ReasonSessionExpiring)
	running(t, exclusiveRestarting).on(machine.Recovered{}, machine.Lost{Run: 1, Expired: true}).
		is(machine.Ended, fleet.Stopped, fleet.ReasonSessionExpiring)
	s := running(t, exclusive).on(order(1, fleet.OrderStop), killed(1))
	s.is(machine.Ended, fleet.Stopped, fleet.ReasonStopRequested)
}

func TestUnwrittenExclusiveCrashIsNotRestarted(t *testing.T) {
	s := running(t, exclusive).on(exited(1, 1)).is(machine.Unconfirmed, fleet.Crashed, fleet.ReasonExited)
	s.on(machine.StatusUnwritten{Generation: 1}).did().is(machine.Unconfirmed, fleet.Crashed, fleet.ReasonExited)
	s.on(machine.StatusWritten{Generation: 1}).did(machine.Clear{})
}

func TestExclusiveLaunchWaitsForSession(t *testing.T) {
	barred := func(t *testing.T) *script {
		return begin(t).on(placed(1), prepared(1, exclusive), machine.NoSession{Run: 1})
	}
	t.Run("it is launched with a session", func(t *testing.T) {
		s := barred(t).did(machine.AwaitSession{Run: 1}).is(machine.AwaitingSession, fleet.Preparing, fleet.ReasonNoSession)
		s.on(machine.Expiring{Force: true}).did()
		s.on(machine.SessionReady{Run: 1}).did(machine.Launch{Run: 2}).on(machine.SessionReady{Run: 1}).did()
		s.on(started(2)).is(machine.Online, fleet.Online, fleet.ReasonProcessStarted)
	})
	t.Run("a later agent continues to wait", func(t *testing.T) {
		barred(t).on(machine.Recovered{}).did(machine.AwaitSession{Run: 1})
	})
	t.Run("a stop does not wait for the session", func(t *testing.T) {
		s := barred(t).on(order(1, fleet.OrderStop)).did(machine.Clear{}).is(machine.Ended, fleet.Stopped, fleet.ReasonStopRequested)
		s.on(machine.SessionReady{Run: 1}).did()
		begin(t).on(placed(1), prepared(1, exclusive), order(1, fleet.OrderStop), machine.NoSession{Run: 1}).
			is(machine.Ended, fleet.Stopped, fleet.ReasonStopRequested)
	})
	t.Run("a restart in place waits too", func(t *testing.T) {
		s := running(t, exclusiveRestarting).on(exited(1, 1), machine.Elapsed{Run: 1, Timer: machine.RestartTimer})
		s.on(machine.NoSession{Run: 2}).is(machine.AwaitingSession, fleet.Starting, fleet.ReasonNoSession)
	})
}

func TestInstanceWithoutGuardIsKilled(t *testing.T) {
	s := running(t, exclusive).on(machine.GuardLost{Run: 0}).did()
	s.on(machine.GuardLost{Run: 1, Message: "gone"}).did(machine.Kill{})
	s.on(exited(1, 137)).is(machine.Ended, fleet.Failed, fleet.ReasonGuardFailed)
}
