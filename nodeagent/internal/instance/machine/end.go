package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/fleet/sleep"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// show sets the state, reason and message that the store shows.
func (t *step) show(state fleet.State, reason fleet.Reason, message string) {
	if t.Notes != "" {
		if message == "" {
			message = reason.Text()
		}
		message += "; " + t.Notes
	}
	t.Status.State, t.Status.Reason, t.Status.ChangedAt = state, reason, t.now
	t.Status.Message = validate.ClipMessage(message, fleet.MaxStatusMessage)
}

// end ends the generation.
func (t *step) end(state fleet.State, reason fleet.Reason, message string, exit *fleet.Exit, at time.Time) {
	t.conclude(state, reason, message, exit, at)
	t.finish()
}

// conclude sets the final status.
func (t *step) conclude(state fleet.State, reason fleet.Reason, message string, exit *fleet.Exit, at time.Time) {
	t.Alive = false
	t.Status.PID, t.Status.Exit, t.Status.FinishedAt = 0, exit, t.endTime(at)
	t.Status.TokenHash = ""
	t.show(state, reason, message)
}

// endTime is the end that the status shows. It is not before the start, even if the host's clock
// was set since.
func (t *step) endTime(at time.Time) time.Time {
	if at.Before(t.Status.StartedAt) {
		return t.Status.StartedAt
	}
	return at
}

func (t *step) finish() {
	if t.Status.State == fleet.Sleeping {
		t.Phase, t.Halt = Asleep, nil
		return
	}
	t.Phase, t.Halt, t.Status.Wake = Ended, nil, nil
	t.do(Clear{})
}

// called notes that something on the network asks the sleeping instance to wake. The first call
// decides. The enforcer wakes it.
func (t *step) called(c sleep.Call) {
	if t.Phase == Asleep && t.Status.Wake == nil {
		t.Status.Wake, t.Status.ChangedAt = &c, t.now
	}
}

// verdict is the meaning of an unrequested exit.
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
		return verdict{fleet.Crashed, fleet.ReasonKilledBySignal, "it was ended by signal KILL: " + reports.CauseKilled}
	case e.Signal != "":
		return verdict{fleet.Crashed, fleet.ReasonKilledBySignal, "it was ended by signal " + e.Signal}
	case e.Code == 0:
		return verdict{fleet.Stopped, fleet.ReasonExitedByItself, ""}
	}
	return verdict{fleet.Crashed, fleet.ReasonExited, fmt.Sprintf("it exited with code %d", e.Code)}
}

// outOfMemory is the message of a kill for memory; empty without a limit.
func outOfMemory(limitMiB int) string {
	if limitMiB == 0 {
		return ""
	}
	return fmt.Sprintf("the kernel killed it because it reached its memory limit of %d MiB; raise memoryMb, or make it use less", limitMiB)
}

func (t *step) exited(e Exited) {
	if e.Run != t.Run || !t.Alive {
		return
	}
	t.ran = e.Ran
	t.processEnded(e.Exit, cause{expired: e.Expired, refused: e.Refused}, e.At)
}

// cause holds external causes of a process's end.
type cause struct {
	rebooted, expired bool
	refused           *Refusal
}

// processEnded handles the end of the process.
func (t *step) processEnded(exit fleet.Exit, c cause, at time.Time) {
	t.Alive, t.Pending = false, ""
	halt := t.Halt
	if t.Phase == Stopping && (!halt.Crash || t.Closing) {
		if halt.Reason == fleet.ReasonStartTimeout {
			t.addUnrecorded(verdict{halt.State, halt.Reason, halt.Message}, exit, at)
		}
		t.end(halt.State, halt.Reason, halt.Message, &exit, at)
		return
	}
	if c.expired {
		t.end(fleet.Stopped, fleet.ReasonSessionExpiring, guardEndedMessage, &exit, at)
		return
	}
	rebooted := c.rebooted
	v := t.endOf(exit, rebooted, c.refused, at)
	if t.Phase == Stopping && !rebooted {
		v = verdict{fleet.Crashed, halt.Reason, halt.Message}
	}
	if !rebooted { // a restart of the host is not a crash
		t.addUnrecorded(v, exit, at)
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
		t.countCrash(at)
		t.conclude(v.state, v.reason, v.message, &exit, at)
		t.Phase, t.Verdict = Unconfirmed, describe(v)
	default:
		t.end(v.state, v.reason, v.message, &exit, at)
	}
}

// countCrash counts a crash. The host's clock may have been set since the earlier ones, so a crash
// in the future counts as recent as one equally far in the past.
func (t *step) countCrash(at time.Time) {
	if t.ran == 0 && !t.Status.StartedAt.IsZero() {
		t.ran = at.Sub(t.Status.StartedAt)
	}
	if t.ran > stableAfter {
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

// restart begins another run in place, or gives up. A restart of the host does not count.
func (t *step) restart(v verdict, exit fleet.Exit, rebooted bool, at time.Time) {
	if !rebooted {
		t.countCrash(at)
	}
	if !rebooted && len(t.Crashes) >= GiveUp {
		message := fmt.Sprintf("%s; that was %d crashes within %v", describe(v), len(t.Crashes), CrashWindow)
		t.Status.Crashes = slices.Clone(t.Crashes[:len(t.Crashes)-1])
		t.end(v.state, v.reason, message, &exit, at)
		return
	}
	switch {
	case rebooted: // a power cut may have damaged the directory
		t.showRestart(v, exit, "it is started again")
		t.Run++
		t.Slept = false
		t.prepare()
	case len(t.Crashes) == 1 && !t.Status.OnlineAt.IsZero():
		t.Level--
		t.showRestart(v, exit, "it is started again at once")
		t.nextRun()
	default:
		t.pauseFor(pause(t.Level), v, exit)
	}
}

func (t *step) pauseFor(d time.Duration, v verdict, exit fleet.Exit) {
	t.showRestart(v, exit, fmt.Sprintf("it is started again after %v", d))
	t.await(d)
}

// await begins another run after a pause.
func (t *step) await(d time.Duration) {
	t.Phase, t.ResumeAt = Waiting, t.now.Add(d)
	t.do(Wake{Run: t.Run, Timer: RestartTimer, After: d})
}

// showRestart shows that a run has ended and another run of the same generation follows.
func (t *step) showRestart(v verdict, exit fleet.Exit, how string) {
	t.Status.PID, t.Status.Exit, t.Status.OnlineAt = 0, &exit, time.Time{}
	t.Status.FinishedAt = time.Time{}
	t.Status.Restarts++
	t.show(fleet.Starting, fleet.ReasonRestartedInPlace, describe(v)+"; "+how)
}

// nextRun begins the next run of the generation.
func (t *step) nextRun() {
	t.Run++
	if t.Unbuilt || t.TokenHash == "" { // a token that was lost with the journal is replaced
		t.prepare()
		return
	}
	t.launch()
}

func describe(v verdict) string {
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

// statusWritten ends a generation whose crash is written to the store.
func (t *step) statusWritten(e StatusWritten) {
	if e.Generation == t.Placement.Generation && t.Phase == Unconfirmed {
		t.finish()
	}
}

// statusUnwritten restarts a crashed instance although its group wants it replaced: the enforcer
// cannot replace it without the store. It does not give up. An exclusive instance is not restarted,
// because another node may already run it.
func (t *step) statusUnwritten(e StatusUnwritten) {
	if e.Generation != t.Placement.Generation || t.Phase != Unconfirmed || t.Plan.Exclusive() {
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

// recovered continues what an earlier agent had begun.
func (t *step) recovered() {
	t.Closing = false
	switch out := t.Pending; {
	case t.Phase == "" || t.Phase == Ended || t.Phase == Asleep:
	case t.Phase == Unconfirmed: // its status is written again, with StatusWritten or StatusUnwritten as the answer
	case t.Phase == AwaitingSession:
		t.do(AwaitSession{Run: t.Run})
	case t.Phase == Waiting:
		t.do(Wake{Run: t.Run, Timer: RestartTimer, After: min(max(t.ResumeAt.Sub(t.now), 0), pause(t.Level))})
	case out == Preparer && t.Phase == Stopping:
		t.Pending = ""
		t.end(t.Halt.State, t.Halt.Reason, t.Halt.Message, nil, t.now)
	case out == Preparer:
		t.Run++
		t.prepare()
	default:
		t.Pending = Adopter
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
		t.stopOrKill()
	case Online:
		t.show(fleet.Online, fleet.ReasonAdopted, "")
		t.watch()
	default:
		limit := time.Duration(t.Plan.StartupTimeoutSeconds) * time.Second
		left := max(limit-t.now.Sub(t.Status.StartedAt), minReadyWait) // it may have become ready while no agent ran
		t.awaitReady(min(left, limit))
	}
}

func (t *step) lost(e Lost) {
	if !t.answered(Adopter, e.Run) {
		return
	}
	if t.Status.State == fleet.Offline && t.Status.StartedAt.IsZero() { // it was never started here
		t.end(fleet.Failed, fleet.ReasonNodeLost, "its node was lost before it was started", nil, t.now)
		return
	}
	if t.Phase == Launching { // it may have been started and have ended while no agent ran
		t.relaunch(e.Rebooted)
		return
	}
	t.processEnded(fleet.Exit{}, cause{rebooted: e.Rebooted, expired: e.Expired}, t.now)
}

// relaunch repeats a run that left nothing. It keeps the directory, unless a power cut may
// have damaged it.
func (t *step) relaunch(rebooted bool) {
	t.Alive = false
	if !rebooted {
		t.nextRun()
		return
	}
	t.Run++
	t.Slept = false
	t.prepare()
}

// maxNote bounds one part of a message in bytes, and maxNotes the number of parts.
const (
	maxNote  = 400
	maxNotes = 16
)

// Note joins the parts of a status message and leaves out empty ones. It clips long parts, so
// that none hides the others.
func Note(parts ...string) string {
	kept := slices.DeleteFunc(slices.Clone(parts), func(p string) bool { return p == "" })
	for n, p := range kept {
		kept[n] = validate.ClipMessage(p, maxNote)
	}
	if more := len(kept) - maxNotes; more > 0 {
		kept = append(kept[:maxNotes], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(kept, "; ")
}

// Resume is the state of an instance that is known from the store's records only. Its
// processes are unknown until Adopt is answered.
func Resume(p fleet.Placement, plan fleet.Plan, s fleet.Status) State {
	state := State{Placement: p, Plan: plan, Run: 1, TokenHash: s.TokenHash, Status: s, Phase: Online, Alive: true}
	switch s.State {
	case fleet.Preparing: // without a process it was never started
		state.Phase = Launching
	case fleet.Starting:
		state.Phase = Starting
	case fleet.Stopping:
		state.Phase, state.Halt = Stopping, &Halt{State: fleet.Stopped, Reason: s.Reason, Message: s.Message}
	case fleet.Stopped, fleet.Crashed, fleet.Failed:
		state.Phase, state.Alive = Ended, false
	case fleet.Sleeping:
		state.Phase, state.Alive = Asleep, false
	case fleet.Unplaced, fleet.Online, fleet.Offline:
	}
	return state
}
