package machine

import (
	"github.com/orreryhq/orrery/libs/fleet"
)

const (
	sessionLostMessage = "its node could not renew its session: it is stopped before another node may get it"
	guardEndedMessage  = "its node could not renew its session in time: its guard ended it"
)

// noSession delays a launch until the node has a session.
func (t *step) noSession(e NoSession) {
	if !t.answered(Launcher, e.Run) {
		return
	}
	t.Alive = false
	if t.Phase == Stopping {
		t.end(t.Halt.State, t.Halt.Reason, t.Halt.Message, nil, t.now)
		return
	}
	t.Phase = AwaitingSession
	t.show(t.Status.State, fleet.ReasonNoSession, "")
	t.do(AwaitSession{Run: t.Run})
}

func (t *step) sessionReady(e SessionReady) {
	if e.Run == t.Run && t.Phase == AwaitingSession {
		t.Run++
		t.launch()
	}
}

// expiring stops an exclusive instance, unless it sleeps or waits for a session and has no process.
func (t *step) expiring(e Expiring) {
	if t.Plan.Exclusive() && t.Phase != AwaitingSession && t.Phase != Asleep {
		t.halt(Halt{Force: e.Force, State: fleet.Stopped, Reason: fleet.ReasonSessionExpiring, Message: sessionLostMessage})
	}
}

func (t *step) guardLost(e GuardLost) {
	if e.Run == t.Run && t.Alive {
		t.halt(Halt{Force: true, State: fleet.Failed, Reason: fleet.ReasonGuardFailed, Message: e.Message})
	}
}
