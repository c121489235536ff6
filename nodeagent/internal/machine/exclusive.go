package machine

import "github.com/orreryhq/orrery/libs/fleet"

const (
	cutOff     = "its node could not renew its session: it is stopped before another node may be given it"
	guardedEnd = "its node could not renew its session in time: its guard ended it"
)

// withheld holds a launch back until the node has a session.
func (t *step) withheld(e Withheld) {
	if !t.answered(Launcher, e.Run) {
		return
	}
	t.Alive = false
	if t.Phase == Stopping {
		t.end(t.Halt.State, t.Halt.Reason, t.Halt.Message, nil, t.now)
		return
	}
	t.Phase = Barred
	t.show(t.Status.State, fleet.ReasonNoSession, "")
	t.do(AwaitSession{Run: t.Run})
}

func (t *step) admitted(e Admitted) {
	if e.Run == t.Run && t.Phase == Barred {
		t.Run++
		t.launch()
	}
}

// expiring stops an exclusive instance, whatever it is doing. One that waits for a
// session goes on waiting, since nothing of it runs.
func (t *step) expiring(e Expiring) {
	if t.Plan.Exclusive() && t.Phase != Barred {
		t.halt(Halt{Force: e.Force, State: fleet.Stopped, Reason: fleet.ReasonSessionExpiring, Message: cutOff})
	}
}

func (t *step) unguarded(e Unguarded) {
	if e.Run == t.Run && t.Alive {
		t.halt(Halt{Force: true, State: fleet.Failed, Reason: fleet.ReasonGuardFailed, Message: e.Message})
	}
}
