package machine

import (
	"fmt"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// noCheck reports whether a check passes as soon as the process runs.
func noCheck(c fleet.Check) bool { return c.Type == fleet.CheckNone || c.Type == "" }

// watch starts the liveness checks and the lifetime timer of an instance that is ready.
func (t *step) watch() {
	if !noCheck(t.Plan.Liveness.Check) || t.Plan.Readiness.Type.TellsPlayers() {
		t.do(Watch{Run: t.Run})
	}
	if limit := t.Plan.MaxLifetimeSeconds; limit > 0 {
		// The clock may have been set: never wait longer than the whole lifetime.
		whole := time.Duration(limit) * time.Second
		left := whole - t.now.Sub(t.Status.StartedAt)
		t.do(Wake{Run: t.Run, Timer: LifetimeTimer, After: min(max(left, 0), whole)})
	}
}

// unhealthy stops an unhealthy server or only reports it, depending on the plan.
func (t *step) unhealthy(e Unhealthy) {
	switch {
	case e.Run != t.Run || t.Phase != Online:
	case t.Plan.Liveness.Then == fleet.UnhealthyReport:
		t.show(fleet.Online, fleet.ReasonUnhealthy, e.Message)
	default:
		t.halt(Halt{State: fleet.Crashed, Reason: fleet.ReasonUnhealthy, Message: e.Message, Crash: true})
	}
}

func (t *step) healthy(e Healthy) {
	if e.Run == t.Run && t.Phase == Online && t.Status.Reason == fleet.ReasonUnhealthy {
		t.show(fleet.Online, fleet.ReasonReady, "it is healthy again")
	}
}

// diskExceeded stops an instance that exceeds its disk limit.
func (t *step) diskExceeded(e DiskExceeded) {
	if e.Run == t.Run && (t.Phase == Starting || t.Phase == Online) {
		t.halt(Halt{State: fleet.Crashed, Reason: fleet.ReasonDiskLimit, Message: e.Message, Crash: true})
	}
}

// lifetimeOver stops a run that has reached its plan's maximum lifetime. It is not a crash;
// the enforcer starts another instance if the group needs it.
func (t *step) lifetimeOver() {
	if t.Phase == Online {
		t.halt(Halt{State: fleet.Stopped, Reason: fleet.ReasonLifetimeOver, Message: fmt.Sprintf("its group limits a run to %d s", t.Plan.MaxLifetimeSeconds)})
	}
}
