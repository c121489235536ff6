package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// show sets what the store shall show.
func (t *step) show(state fleet.State, reason fleet.Reason, message string) {
	if t.Notes != "" {
		if message == "" {
			message = reason.Text()
		}
		message += "; " + t.Notes
	}
	t.Status.State, t.Status.Reason, t.Status.ChangedAt = state, reason, t.now
	t.Status.Message = fleet.ClipMessage(message, fleet.MaxStatusMessage)
}

// end closes the generation.
func (t *step) end(state fleet.State, reason fleet.Reason, message string, exit *fleet.Exit, at time.Time) {
	t.conclude(state, reason, message, exit, at)
	t.finish()
}

// conclude sets the final status.
func (t *step) conclude(state fleet.State, reason fleet.Reason, message string, exit *fleet.Exit, at time.Time) {
	t.Alive = false
	t.Status.PID, t.Status.Exit, t.Status.FinishedAt = 0, exit, t.dated(at)
	t.Status.TokenHash = ""
	t.show(state, reason, message)
}

// dated is when the run ended for those who read of it. What ends at once may have
// ended before its start was noted, and the host's clock may have been set since.
func (t *step) dated(at time.Time) time.Time {
	if at.Before(t.Status.StartedAt) {
		return t.Status.StartedAt
	}
	return at
}

func (t *step) finish() {
	t.Phase, t.Halt = Ended, nil
	t.do(Clear{})
}

// verdict is what an exit that nobody asked for means.
type verdict struct {
	state   fleet.State
	reason  fleet.Reason
	message string
}

func judge(e fleet.Exit, rebooted bool) verdict {
	switch {
	case rebooted:
		return verdict{fleet.Crashed, fleet.ReasonNodeRebooted, ""}
	case !e.Known:
		return verdict{fleet.Crashed, fleet.ReasonExitUnknown, ""}
	case e.OOM:
		return verdict{fleet.Crashed, fleet.ReasonOutOfMemory, outOfMemory(e.LimitMiB)}
	case e.Hangup:
		return verdict{fleet.Crashed, fleet.ReasonTerminalGone, ""}
	case e.Signal == "KILL":
		return verdict{fleet.Crashed, fleet.ReasonKilledBySignal, "it was ended by signal KILL: " + fleet.CauseKilled}
	case e.Signal != "":
		return verdict{fleet.Crashed, fleet.ReasonKilledBySignal, "it was ended by signal " + e.Signal}
	case e.Code == 0:
		return verdict{fleet.Stopped, fleet.ReasonExitedByItself, ""}
	}
	return verdict{fleet.Crashed, fleet.ReasonExited, fmt.Sprintf("it exited with code %d", e.Code)}
}

// outOfMemory is what a kill for memory says; empty when no limit was in force.
func outOfMemory(limitMiB int) string {
	if limitMiB == 0 {
		return ""
	}
	return fmt.Sprintf("the kernel killed it for memory: it had come to its limit of %d MiB; raise memoryMb, or have it use less", limitMiB)
}

func (t *step) exited(e Exited) {
	if e.Run != t.Run || !t.Alive {
		return
	}
	t.ran = e.Ran
	t.gone(e.Exit, cause{expired: e.Expired, refused: e.Refused}, e.At)
}

// cause is what else than itself may have ended a process.
type cause struct {
	rebooted, expired bool
	refused           *Refusal
}

// gone handles the end of the process, of whatever cause.
func (t *step) gone(exit fleet.Exit, c cause, at time.Time) {
	t.Alive, t.Out = false, ""
	halt := t.Halt
	if t.Phase == Stopping && (!halt.Crash || t.Closing) {
		if halt.Reason == fleet.ReasonStartTimeout {
			t.unrecorded(verdict{halt.State, halt.Reason, halt.Message}, exit, at)
		}
		t.end(halt.State, halt.Reason, halt.Message, &exit, at)
		return
	}
	if c.expired {
		t.end(fleet.Stopped, fleet.ReasonSessionExpiring, guardedEnd, &exit, at)
		return
	}
	rebooted := c.rebooted
	v := t.endOf(exit, rebooted, c.refused, at)
	if t.Phase == Stopping && !rebooted {
		v = verdict{fleet.Crashed, halt.Reason, halt.Message}
	}
	if !rebooted { // a restart of the host is nobody's crash
		t.unrecorded(v, exit, at)
	}
	t.Halt = nil
	if v.state != fleet.Crashed {
		t.end(v.state, v.reason, v.message, &exit, at)
		return
	}
	switch {
	case t.Plan.OnCrash == fleet.CrashRestart && !t.Closing:
		t.restart(v, exit, rebooted, at)
	case t.Plan.OnCrash == fleet.CrashReplace && !t.Closing && !rebooted:
		t.count(at)
		t.conclude(v.state, v.reason, v.message, &exit, at)
		t.Phase, t.Verdict = Doubtful, sentence(v)
	default:
		t.end(v.state, v.reason, v.message, &exit, at)
	}
}

// count notes a crash. The host's clock may have been set since the ones before: what
// seems to lie ahead is as recent as what lies as far behind.
func (t *step) count(at time.Time) {
	if t.ran == 0 && !t.Status.StartedAt.IsZero() {
		t.ran = at.Sub(t.Status.StartedAt)
	}
	if t.ran > stable {
		t.Level = 0
	}
	t.Level++
	recent := []time.Time{at}
	for _, c := range slices.Backward(t.Crashes) {
		if at.Sub(c).Abs() < CrashWindow {
			recent = append(recent, c)
		}
	}
	slices.Reverse(recent)
	t.Crashes = recent[max(0, len(recent)-GiveUp):]
}

// restart begins another run in place, or gives up. A restart of the host is not the server's fault.
func (t *step) restart(v verdict, exit fleet.Exit, rebooted bool, at time.Time) {
	if !rebooted {
		t.count(at)
	}
	if !rebooted && len(t.Crashes) >= GiveUp {
		message := fmt.Sprintf("%s; that was %d crashes within %v", sentence(v), len(t.Crashes), CrashWindow)
		t.Status.Crashes = slices.Clone(t.Crashes[:len(t.Crashes)-1])
		t.end(v.state, v.reason, message, &exit, at)
		return
	}
	switch {
	case rebooted: // what lies in the directory is not to be trusted after a power cut
		t.goOn(v, exit, "it is started again")
		t.Run++
		t.prepare()
	case len(t.Crashes) == 1 && !t.Status.OnlineAt.IsZero():
		t.Level--
		t.goOn(v, exit, "it is started again at once")
		t.again()
	default:
		t.pauseFor(pause(t.Level), v, exit)
	}
}

func (t *step) pauseFor(d time.Duration, v verdict, exit fleet.Exit) {
	t.goOn(v, exit, fmt.Sprintf("it is started again after %v", d))
	t.await(d)
}

// await begins another run after a pause.
func (t *step) await(d time.Duration) {
	t.Phase, t.ResumeAt = Waiting, t.now.Add(d)
	t.do(Wake{Run: t.Run, Timer: RestartTimer, After: d})
}

// goOn shows that a run has ended and another one of the same generation follows.
func (t *step) goOn(v verdict, exit fleet.Exit, how string) {
	t.Status.PID, t.Status.Exit, t.Status.OnlineAt = 0, &exit, time.Time{}
	t.Status.FinishedAt = time.Time{}
	t.Status.Restarts++
	t.show(fleet.Starting, fleet.ReasonRestartedInPlace, sentence(v)+"; "+how)
}

// again begins the next run of the generation.
func (t *step) again() {
	t.Run++
	if t.Unbuilt || t.TokenHash == "" { // its token was lost with the journal: it gets another one
		t.prepare()
		return
	}
	t.launch()
}

func sentence(v verdict) string {
	if v.message != "" {
		return v.message
	}
	return v.reason.Text()
}

func startTimeout(seconds int, why string) string {
	text := fmt.Sprintf("it was not ready within %d s", seconds)
	if why != "" {
		text += ": " + why
	}
	return text
}

// settled ends the doubt: others know of the crash and act on it.
func (t *step) settled(e Settled) {
	if e.Generation == t.Placement.Generation && t.Phase == Doubtful {
		t.finish()
	}
}

// unsettled starts a crashed instance again although its group wants it replaced:
// nobody can be told, so nobody would replace it. There is no giving up meanwhile.
// Of an exclusive one another copy may be started elsewhere before anybody is told.
func (t *step) unsettled(e Unsettled) {
	if e.Generation != t.Placement.Generation || t.Phase != Doubtful || t.Plan.Exclusive() {
		return
	}
	exit := fleet.Exit{}
	if t.Status.Exit != nil {
		exit = *t.Status.Exit
	}
	v := judge(exit, false)
	v.message = cmp.Or(t.Verdict, v.message)
	t.Verdict, t.Status.TokenHash = "", t.TokenHash
	t.pauseFor(pause(t.Level), v, exit)
}

func (t *step) superseded(e Superseded) {
	if e.Generation != t.Placement.Generation {
		return
	}
	t.halt(Halt{Force: true, State: fleet.Stopped, Reason: fleet.ReasonOrphan, Message: "its record says that it has ended"})
}

// recovered takes up what an earlier agent left.
func (t *step) recovered() {
	t.Closing = false
	switch out := t.Out; {
	case t.Phase == "" || t.Phase == Ended:
	case t.Phase == Doubtful: // its status is written again, and then settled or not
	case t.Phase == Barred:
		t.do(AwaitSession{Run: t.Run})
	case t.Phase == Waiting:
		t.do(Wake{Run: t.Run, Timer: RestartTimer, After: min(max(t.ResumeAt.Sub(t.now), 0), pause(t.Level))})
	case out == Preparer && t.Phase == Stopping:
		t.Out = ""
		t.end(t.Halt.State, t.Halt.Reason, t.Halt.Message, nil, t.now)
	case out == Preparer:
		t.Run++
		t.prepare()
	default:
		t.Out = Adopter
		t.do(Adopt{Run: t.Run})
	}
}

func (t *step) found(e Found) {
	if !t.answered(Adopter, e.Run) {
		return
	}
	if e.PID != 0 {
		t.Status.PID = e.PID
	}
	if t.Status.StartedAt.IsZero() {
		t.Status.StartedAt = t.now
	}
	switch t.Phase {
	case Stopping:
		t.bringDown()
	case Online:
		t.show(fleet.Online, fleet.ReasonAdopted, "")
		t.watch()
	default:
		limit := time.Duration(t.Plan.StartupTimeoutSeconds) * time.Second
		left := max(limit-t.now.Sub(t.Status.StartedAt), readyAgain) // it may have become ready while nobody looked
		t.awaitReady(min(left, limit))
	}
}

func (t *step) lost(e Lost) {
	if !t.answered(Adopter, e.Run) {
		return
	}
	if t.Status.State == fleet.Offline && t.Status.StartedAt.IsZero() { // given up before this node began with it
		t.end(fleet.Failed, fleet.ReasonNodeLost, "its node was lost before it was started", nil, t.now)
		return
	}
	if t.Phase == Launching { // it may have been started and have ended while no agent looked
		t.relaunch(e.Rebooted)
		return
	}
	t.gone(fleet.Exit{}, cause{rebooted: e.Rebooted, expired: e.Expired}, t.now)
}

// relaunch starts a run again of which nothing is left. It keeps what servers wrote into
// the directory, unless a power cut may have damaged it.
func (t *step) relaunch(rebooted bool) {
	t.Alive = false
	if !rebooted {
		t.again()
		return
	}
	t.Run++
	t.prepare()
}

// maxNote and maxNotes bound what one part of a message may take, and how many there are.
const (
	maxNote  = 400
	maxNotes = 16
)

// Note is a status message with its parts joined; empty parts are left out. Long parts
// are clipped, so that none hides the others.
func Note(parts ...string) string {
	kept := slices.DeleteFunc(slices.Clone(parts), func(p string) bool { return p == "" })
	for n, p := range kept {
		kept[n] = fleet.ClipMessage(p, maxNote)
	}
	if more := len(kept) - maxNotes; more > 0 {
		kept = append(kept[:maxNotes], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(kept, "; ")
}

// Resume is the state of an instance of which only the store's records are left:
// what runs of it is unknown until somebody has looked.
func Resume(p fleet.Placement, plan fleet.Plan, s fleet.Status) State {
	state := State{Placement: p, Plan: plan, Run: 1, TokenHash: s.TokenHash, Status: s, Phase: Online, Alive: true}
	switch s.State {
	case fleet.Preparing: // if nothing of it is found, it was never started
		state.Phase = Launching
	case fleet.Starting:
		state.Phase = Starting
	case fleet.Stopping:
		state.Phase, state.Halt = Stopping, &Halt{State: fleet.Stopped, Reason: s.Reason, Message: s.Message}
	case fleet.Stopped, fleet.Crashed, fleet.Failed:
		state.Phase, state.Alive = Ended, false
	case fleet.Unplaced, fleet.Online, fleet.Offline:
	}
	return state
}
