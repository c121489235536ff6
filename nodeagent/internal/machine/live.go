package machine

import (
	"fmt"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// asksNothing reports whether a check is passed as soon as the process runs.
func asksNothing(c fleet.Check) bool { return c.Type == fleet.CheckNone || c.Type == "" }

// watch has an instance that is ready watched, and its time measured.
func (t *step) watch() {
	if !asksNothing(t.Plan.Liveness.Check) || t.Plan.Readiness.Type.TellsPlayers() {
		t.do(Watch{Run: t.Run})
	}
	if limit := t.Plan.MaxLifetimeSeconds; limit > 0 {
		// By a clock that may have been set: never longer than the whole time from now on.
		whole := time.Duration(limit) * time.Second
		left := whole - t.now.Sub(t.Status.StartedAt)
		t.do(Wake{Run: t.Run, Timer: LifetimeTimer, After: min(max(left, 0), whole)})
	}
}

// unhealthy ends a server that serves no more, or says so, as the plan has it.
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
		t.show(fleet.Online, fleet.ReasonReady, "it serves again")
	}
}

// overgrown ends an instance that fills its node's disk.
func (t *step) overgrown(e Overgrown) {
	if e.Run == t.Run && (t.Phase == Starting || t.Phase == Online) {
		t.halt(Halt{State: fleet.Crashed, Reason: fleet.ReasonDiskLimit, Message: e.Message, Crash: true})
	}
}

// lifetimeOver ends a run that has lasted as long as its plan lets one last. It is no
// crash: whoever counts the group's instances makes another.
func (t *step) lifetimeOver() {
	if t.Phase == Online {
		t.halt(Halt{State: fleet.Stopped, Reason: fleet.ReasonLifetimeOver, Message: fmt.Sprintf("its group lets a run last %d s", t.Plan.MaxLifetimeSeconds)})
	}
}
