package machine_test

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
)

func alive(p *fleet.Plan) { p.Liveness.Type = fleet.CheckPort }

func TestUnhealthyIsACrash(t *testing.T) {
	s := running(t, alive).did(machine.Watch{Run: 1})
	s.on(machine.Unhealthy{Run: 1, Message: "silent"}).did(machine.Stop{}).is(machine.Stopping, fleet.Online, fleet.ReasonUnhealthy)
	s.on(exited(1, 0)).is(machine.Unconfirmed, fleet.Crashed, fleet.ReasonUnhealthy)
	s.on(machine.StatusWritten{Generation: 1}).is(machine.Ended, fleet.Crashed, fleet.ReasonUnhealthy)
}

func TestUnhealthyRestartsInPlace(t *testing.T) {
	s := running(t, func(p *fleet.Plan) { alive(p); restarting(p) })
	s.on(machine.Unhealthy{Run: 1, Message: "silent"}, exited(1, 0)).is(machine.Launching, fleet.Starting, fleet.ReasonRestartedInPlace)
	s.did(machine.Launch{Run: 2})
	s.on(machine.Unhealthy{Run: 1, Message: "of the run before"}, started(2)).is(machine.Online, fleet.Online, fleet.ReasonRestartedInPlace)
}

func TestUnhealthyMayOnlyBeReported(t *testing.T) {
	s := running(t, func(p *fleet.Plan) { alive(p); p.Liveness.Then = fleet.UnhealthyReport })
	s.on(machine.Unhealthy{Run: 1, Message: "silent"}).did().is(machine.Online, fleet.Online, fleet.ReasonUnhealthy)
	s.on(machine.Healthy{Run: 1}).did().is(machine.Online, fleet.Online, fleet.ReasonReady)
}

func TestRequestedStopIsNotACrash(t *testing.T) {
	s := running(t, alive).on(machine.Unhealthy{Run: 1, Message: "silent"}, order(1, fleet.OrderStop)).did().is(machine.Stopping, fleet.Stopping, fleet.ReasonStopRequested)
	s.on(order(1, fleet.OrderKill)).did(machine.Kill{})
	s.on(exited(1, 137)).is(machine.Ended, fleet.Stopped, fleet.ReasonStopRequested)
}

func TestStandingOrderIsNotACrash(t *testing.T) {
	s := running(t, alive).on(order(1, fleet.OrderStop), machine.Unhealthy{Run: 1, Message: "silent"}).did()
	s.on(exited(1, 0)).is(machine.Ended, fleet.Stopped, fleet.ReasonStopRequested)
}

func TestDiskLimitEndsInstance(t *testing.T) {
	s := running(t, func(p *fleet.Plan) { p.OnCrash = fleet.CrashStop })
	s.on(machine.DiskExceeded{Run: 1, Message: "70 MiB of 64"}).did(machine.Stop{})
	s.on(exited(1, 0)).is(machine.Ended, fleet.Crashed, fleet.ReasonDiskLimit)
}

func TestMaxLifetimeEndsRun(t *testing.T) {
	limited := func(p *fleet.Plan) { p.MaxLifetimeSeconds = 60 }
	s := running(t, limited).did(machine.Wake{Run: 1, Timer: machine.LifetimeTimer, After: time.Minute})
	s.on(machine.Elapsed{Run: 1, Timer: machine.LifetimeTimer}).did(machine.Stop{})
	s.on(exited(1, 0)).is(machine.Ended, fleet.Stopped, fleet.ReasonLifetimeOver)
}

func TestAdoptedRunKeepsRemainingLifetime(t *testing.T) {
	s := running(t, func(p *fleet.Plan) { alive(p); p.MaxLifetimeSeconds = 60 })
	s.now = epoch.Add(50 * time.Second)
	s.on(machine.Recovered{}).did(machine.Adopt{Run: 1})
	s.on(machine.Found{Run: 1, PID: 7}).did(machine.Watch{Run: 1}, machine.Wake{Run: 1, Timer: machine.LifetimeTimer, After: 10 * time.Second})
}
