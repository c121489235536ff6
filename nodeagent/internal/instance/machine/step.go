package machine

import (
	"cmp"
	"fmt"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Step applies an event to a state.
func Step(s State, ev Event, now time.Time) (State, []Effect) {
	t := &step{State: s, now: now}
	switch e := ev.(type) {
	case Placed:
		t.placed(e.Placement)
	case Removed:
		t.Orphan = true
	case Ordered:
		t.ordered(e.Order)
	case StoppedLocally:
		t.halt(Halt{
			Force: e.Force, State: fleet.Stopped, Reason: fleet.ReasonStoppedLocally,
			Message: fmt.Sprintf("stopped on the node itself by %s, without the control plane", e.By),
		})
	case Shutdown:
		t.Closing = true
		t.halt(Halt{State: fleet.Stopped, Reason: fleet.ReasonAgentShutdown})
	case Recovered:
		t.recovered()
	case Prepared:
		t.prepared(e)
	case Failed:
		t.failed(e)
	case Queued:
		t.queued(e)
	case Delayed:
		t.delayed(e)
	case Started:
		t.started(e)
	case Found:
		t.found(e)
	case Lost:
		t.lost(e)
	case NoSession:
		t.noSession(e)
	case SessionReady:
		t.sessionReady(e)
	case Expiring:
		t.expiring(e)
	case GuardLost:
		t.guardLost(e)
	case Ready:
		t.ready(e)
	case Unhealthy:
		t.unhealthy(e)
	case Healthy:
		t.healthy(e)
	case DiskExceeded:
		t.diskExceeded(e)
	case Exited:
		t.exited(e)
	case Recorded:
		t.recorded(e)
	case Elapsed:
		t.elapsed(e)
	case StatusWritten:
		t.statusWritten(e)
	case StatusUnwritten:
		t.statusUnwritten(e)
	case Called:
		t.called(e.Call)
	case Superseded:
		t.superseded(e)
	}
	t.afterwards()
	return t.State, t.effects
}

// step is a running Step.
type step struct {
	State
	now     time.Time
	effects []Effect
	// ran is how long the process ran that ended; 0 if unknown.
	ran time.Duration
}

func (t *step) do(e Effect) { t.effects = append(t.effects, e) }

// afterwards begins a waiting generation when the current one has ended, and forgets an
// ended instance without a placement.
func (t *step) afterwards() {
	if (t.Phase == Ended || t.Phase == Asleep || t.Phase == "") && t.Next != nil && !t.Closing {
		next := *t.Next
		t.begin(next)
	}
	if t.Orphan && t.Next == nil && t.Phase == Asleep {
		t.halt(Halt{State: fleet.Stopped, Reason: fleet.ReasonOrphan, Message: "its record is gone"})
	}
	if t.Orphan && t.Next == nil && (t.Phase == Ended || t.Phase == "") {
		t.do(Forget{})
	}
}

func (t *step) placed(p fleet.Placement) {
	t.Orphan = false
	switch {
	case t.Phase != "" && p.Generation <= t.Placement.Generation:
	case t.Next != nil && p.Generation <= t.Next.Generation:
	case t.Phase == "" && !t.Closing:
		t.begin(p)
	case t.Phase == Asleep: // see afterwards
		t.Next = &p
	default:
		t.Next = &p
		t.halt(Halt{State: fleet.Stopped, Reason: fleet.ReasonStopRequested, Message: "a newer generation was placed"})
	}
}

// begin starts a generation. No process of an earlier one is alive.
func (t *step) begin(p fleet.Placement) {
	early := t.Early
	slept := t.Phase == Asleep && p.Plan == t.Placement.Plan && !t.Unbuilt
	plan := fleet.Plan{}
	if slept {
		plan = t.Plan
	}
	t.State = State{
		Phase: Preparing, Slept: slept, Plan: plan, Placement: p, Run: t.Run + 1, Early: early, Closing: t.Closing, Unrecorded: t.Unrecorded,
		Status: fleet.Status{Instance: p.Instance, Group: p.Group, Node: p.Node, Generation: p.Generation},
	}
	t.show(fleet.Preparing, fleet.ReasonPreparing, "")
	if early != nil && early.Generation <= p.Generation {
		t.Early = nil
		if early.Generation == p.Generation {
			t.ordered(*early)
			return
		}
	}
	t.prepare()
}

func (t *step) prepare() {
	t.Phase, t.Pending, t.Unbuilt = Preparing, Preparer, true
	t.do(Prepare{Run: t.Run})
}

func (t *step) launch() {
	t.Phase, t.Pending, t.Alive = Launching, Launcher, true
	t.do(Launch{Run: t.Run})
}

func (t *step) ordered(o fleet.Order) {
	switch {
	case t.Phase == "" || o.Generation > t.Placement.Generation:
		if t.Early == nil || o.Generation >= t.Early.Generation {
			t.Early = &o
		}
		return
	case o.Generation < t.Placement.Generation:
		return
	case t.Order != nil && (t.Order.Action == o.Action || t.Order.Action == fleet.OrderKill):
		return
	}
	t.Order = &o
	if o.Action == fleet.OrderSleep {
		t.halt(Halt{State: fleet.Sleeping, Reason: o.Reason, Message: o.Message})
		return
	}
	t.halt(Halt{Force: o.Action == fleet.OrderKill, State: fleet.Stopped, Reason: o.Reason, Message: o.Message})
}

// halt ends the generation, whatever its phase.
func (t *step) halt(h Halt) {
	switch t.Phase {
	case "", Ended:
		return
	case Unconfirmed:
		t.finish()
		return
	case Stopping:
		t.haltAgain(h)
		return
	case Asleep:
		if h.State != fleet.Sleeping && h.Reason != fleet.ReasonAgentShutdown {
			t.end(h.State, h.Reason, h.Message, t.Status.Exit, t.now)
		}
		return
	case Preparing, Launching, Starting, Online, Waiting, AwaitingSession:
	}
	t.Halt = &h
	t.Phase = Stopping
	if t.Pending == "" && !t.Alive {
		t.end(h.State, h.Reason, h.Message, nil, t.now)
		return
	}
	t.showHalt()
	switch t.Pending {
	case Preparer, Launcher:
		t.do(Cancel{})
	case Adopter: // its answer decides
	case "":
		t.stopOrKill()
	}
}

// haltAgain handles another reason to stop during a stop: it adds force, and a requested stop
// replaces a crash.
func (t *step) haltAgain(h Halt) {
	next := *t.Halt
	asked := next.Crash && !h.Crash || next.State == fleet.Sleeping && h.State != fleet.Sleeping && !h.Crash
	if asked {
		next = h
	}
	next.Force = t.Halt.Force || h.Force
	newlyForced := next.Force && !t.Halt.Force
	t.Halt = &next
	if asked {
		t.showHalt()
	}
	if newlyForced && t.Pending == "" {
		t.do(Kill{})
	}
}

// showHalt shows why the generation stops. After a crash it keeps its state, because another
// run may follow.
func (t *step) showHalt() {
	state := fleet.Stopping
	if t.Halt.Crash {
		state = t.Status.State
	}
	t.show(state, t.Halt.Reason, t.Halt.Message)
}

func (t *step) stopOrKill() {
	if t.Halt.Force {
		t.do(Kill{})
		return
	}
	t.do(Stop{})
}

// answered accepts the answer of the pending helper. It returns false for any other answer.
func (t *step) answered(h Helper, run int) bool {
	if t.Pending != h || run != t.Run {
		return false
	}
	t.Pending = ""
	return true
}

func (t *step) prepared(e Prepared) {
	if !t.answered(Preparer, e.Run) {
		return
	}
	t.Plan, t.Notes, t.TokenHash, t.Unbuilt = e.Plan, e.Notes, e.TokenHash, false
	t.Status.HostAddress, t.Status.TokenHash = e.HostAddress, e.TokenHash
	if t.Phase == Stopping {
		t.end(t.Halt.State, t.Halt.Reason, t.Halt.Message, nil, t.now)
		return
	}
	t.launch()
}

func (t *step) failed(e Failed) {
	switch {
	case t.answered(Preparer, e.Run):
	case t.answered(Launcher, e.Run):
		t.Alive = false
	default:
		return
	}
	if t.Phase == Stopping {
		t.end(t.Halt.State, t.Halt.Reason, t.Halt.Message, nil, t.now)
		return
	}
	if t.Tries++; t.Tries < maxTries && e.transient() && !t.Closing {
		d := pause(t.Tries)
		how := fmt.Sprintf("that was attempt %d of %d, the next follows after %v", t.Tries, maxTries, d)
		t.show(t.Status.State, e.Reason, cmp.Or(e.Message, e.Reason.Text())+"; "+how)
		t.await(d)
		return
	}
	t.end(fleet.Failed, e.Reason, e.Message, nil, t.now)
}

func (t *step) queued(e Queued) {
	switch {
	case e.Run != t.Run || t.Phase != Preparing || t.Pending != Preparer:
	case e.Message != "":
		t.show(t.Status.State, cmp.Or(e.Reason, fleet.ReasonStartQueued), e.Message)
	default:
		t.show(t.Status.State, fleet.ReasonPreparing, "")
	}
}

func (t *step) delayed(e Delayed) {
	if e.Run == t.Run && t.Phase == Launching {
		t.show(t.Status.State, fleet.ReasonPortReleasing, e.Message)
	}
}

func (t *step) started(e Started) {
	if !t.answered(Launcher, e.Run) {
		return
	}
	t.Status.PID, t.Status.StartedAt, t.Tries = e.PID, e.At, 0
	if t.Phase == Stopping {
		t.showHalt()
		t.stopOrKill()
		return
	}
	t.awaitReady(time.Duration(t.Plan.StartupTimeoutSeconds) * time.Second)
}

// awaitReady waits for readiness at most for a time; 0 means without limit.
func (t *step) awaitReady(within time.Duration) {
	if noCheck(t.Plan.Readiness) {
		t.online()
		return
	}
	t.Phase = Starting
	reason := fleet.ReasonProcessStarted
	if t.Status.Restarts > 0 {
		reason = fleet.ReasonRestartedInPlace
	}
	t.show(fleet.Starting, reason, "")
	t.do(AwaitReady{Run: t.Run})
	if t.Plan.StartupTimeoutSeconds > 0 {
		t.do(Wake{Run: t.Run, Timer: StartTimer, After: max(within, 0)})
	}
}

func (t *step) online() {
	t.Phase = Online
	t.Status.OnlineAt = t.now
	reason := fleet.ReasonReady
	switch {
	case t.Status.Restarts > 0:
		reason = fleet.ReasonRestartedInPlace
	case noCheck(t.Plan.Readiness):
		reason = fleet.ReasonProcessStarted
	}
	message := ""
	if reason == fleet.ReasonProcessStarted {
		message = "the process runs"
	}
	t.show(fleet.Online, reason, message)
	t.watch()
}

func (t *step) ready(e Ready) {
	if e.Run == t.Run && t.Phase == Starting && t.Pending == "" {
		t.online()
	}
}

func (t *step) elapsed(e Elapsed) {
	switch {
	case e.Run != t.Run:
	case e.Timer == StartTimer && t.Phase == Starting:
		t.halt(Halt{Force: true, State: fleet.Failed, Reason: fleet.ReasonStartTimeout, Message: startTimeout(t.Plan.StartupTimeoutSeconds, e.Why)})
	case e.Timer == LifetimeTimer:
		t.lifetimeOver()
	case e.Timer == RestartTimer && t.Phase == Waiting:
		t.nextRun()
	}
}
