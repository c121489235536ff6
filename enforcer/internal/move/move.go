// Package move decides the next step of a static instance's move to another node. It is pure: the
// same records and times give the same decision, so any enforcer continues a move at any step.
//
//	STOPPING ─ it has ended ─▶ COPYING ─ the copy is verified ─▶ STARTING ─ it is ONLINE ─▶ DONE
//	    └───────────┴── cancelled, impossible, or too slow ──┴─▶ CANCELED, FAILED
//
// Until the instance is placed on the target, every step can go back to the source. Each change of
// the intent is in the transaction of the step that it belongs to.
package move

import (
	"cmp"
	"fmt"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
)

// Input is what a decision depends on. Times are in the clock of the caller.
type Input struct {
	Move *move.Move
	// Copy is the copy of this move, nil before the target has begun.
	Copy     *move.Copy
	Instance *fleet.Instance
	// Gone reports whether a node was deleted, or has joined again with another data directory.
	Gone func(node fleet.NodeID, dataUUID string) bool
	// Drain is the drain of the source until a user ends it, or nil.
	Drain *fleet.NodeDrain
}

// Verb is what to do.
type Verb string

// The verbs.
const (
	Wait   Verb = "WAIT"   // nothing until a record changes or the time comes
	Retire Verb = "RETIRE" // let the players leave the instance
	Stop   Verb = "STOP"   // stop the instance, or keep an ended one from starting again
	Write  Verb = "WRITE"  // write Move, and Intent unless it is nil
)

// Decision is the next step of a move.
type Decision struct {
	Verb Verb
	// Message explains it in a sentence.
	Message string
	// Move and Intent are the records to write, set for Write. The commit sets the times of Move, and
	// the time of the stop if that is zero.
	Move   *move.Move
	Intent *fleet.Intent
	// Wake is when time alone changes the decision; zero when it does not.
	Wake time.Time
}

// Decide returns the next step of an active move.
func Decide(in Input, now time.Time) Decision {
	switch in.Move.Step {
	case move.Stopping:
		return in.stopping()
	case move.Copying:
		return in.copying(now)
	case move.Starting:
		return in.starting(now)
	case move.Done, move.Canceled, move.Failed:
	}
	return Decision{Verb: Wait}
}

func (in Input) stopping() Decision {
	i, m := in.Instance, in.Move
	if d, over := in.over(); over {
		return d
	}
	if i.Node() != m.Source {
		return in.back(move.Failed, fleet.ReasonNodeLost, fmt.Sprintf("it left node %s before it was stopped for the move", m.Source))
	}
	if i.Intent.Desired == fleet.DesiredRunning || i.Intent.RestartPending {
		return in.end()
	}
	if !i.Terminal() || i.HoldsNode() {
		return Decision{Verb: Wait, Message: fmt.Sprintf("it is stopping on node %s", m.Source)}
	}
	next := *m
	next.Step, next.Generation = move.Copying, i.LastGeneration()
	return Decision{Verb: Write, Move: &next, Message: fmt.Sprintf("node %s copies it from node %s", m.Target, m.Source)}
}

// end asks a running instance to end.
func (in Input) end() Decision {
	i, m := in.Instance, in.Move
	text := in.text()
	switch retires := i.Retiring() && i.Intent.Retire.Reason == fleet.ReasonMoved; {
	case i.Lost() || i.Stranded():
		return Decision{Verb: Wait, Message: fmt.Sprintf("its node %s is lost: start the node's agent again, or cancel the move", m.Source)}
	case i.Intent.Frozen:
		return Decision{Verb: Wait, Message: "it is frozen: unfreeze it, or cancel the move"}
	case retires && i.State() == fleet.Online:
		return Decision{Verb: Wait, Message: "its players may leave before it stops"}
	case i.State() == fleet.Online && m.DeadlineSeconds > 0 && !i.Intent.RestartPending:
		return Decision{Verb: Retire, Message: text}
	}
	return Decision{Verb: Stop, Message: text}
}

// text says why the instance is stopped.
func (in Input) text() string {
	text := fmt.Sprintf("it is moved from node %s to node %s by %s", in.Move.Source, in.Move.Target, in.Move.By)
	if in.Move.Message != "" {
		text += ": " + in.Move.Message
	}
	return text
}

func (in Input) copying(now time.Time) Decision {
	i, m, c := in.Instance, in.Move, in.Copy
	switch {
	case i.Intent.Generation > m.Generation || !i.Terminal() || i.HoldsNode():
		return in.back(move.Failed, fleet.ReasonRequested, fmt.Sprintf("it was started on node %s during the copy", m.Source))
	case i.Node() != m.Source:
		return in.back(move.Failed, fleet.ReasonDataLost, fmt.Sprintf("its data is no longer on node %s", m.Source))
	}
	if d, over := in.over(); over {
		return d
	}
	since := m.StepAt
	if c != nil && c.At.After(since) {
		since = c.At
	}
	stalled := since.Add(move.StallFor)
	switch {
	case c != nil && c.State == move.Broken:
		return in.back(move.Failed, c.Reason, c.Message)
	case c != nil && c.State == move.Verified:
		return in.arrive()
	case !stalled.After(now):
		why := "node " + string(m.Target) + " did not begin the copy"
		if c != nil {
			why = cmp.Or(c.Message, "node "+string(m.Target)+" got nothing new")
		}
		return in.back(move.Failed, fleet.ReasonDeadlinePassed, fmt.Sprintf("the copy made no progress for %v: %s", move.StallFor, why))
	}
	return Decision{Verb: Wait, Message: fmt.Sprintf("node %s copies its data from node %s", m.Target, m.Source), Wake: stalled}
}

// arrive makes the copy the data of the instance, and starts it unless a user wants it stopped.
func (in Input) arrive() Decision {
	m, c := *in.Move, in.Copy
	intent := in.Instance.Intent
	intent.MovesTo = &fleet.DataCopy{Node: m.Target, DataUUID: m.TargetUUID, Generation: m.Generation}
	m.Bytes, m.Files, m.Shared = c.BytesDone, c.FilesDone, c.Shared
	if drained := intent.Stop != nil && intent.Stop.Reason == fleet.ReasonNodeDrained; !in.stopped() && !drained {
		m.Step, m.Detail = move.Done, fmt.Sprintf("it was stopped, so it starts on node %s when a user starts it", m.Target)
		return Decision{Verb: Write, Move: &m, Intent: &intent, Message: m.Detail}
	}
	m.Step, intent.RestartPending = move.Starting, true
	return Decision{Verb: Write, Move: &m, Intent: &intent, Message: fmt.Sprintf("its data is on node %s, so it starts there", m.Target)}
}

func (in Input) starting(now time.Time) Decision {
	i, m := in.Instance, *in.Move
	done := func(detail string) Decision {
		m.Step, m.Detail = move.Done, detail
		return Decision{Verb: Write, Move: &m, Message: detail}
	}
	stopped := i.Intent.Desired == fleet.DesiredStopped && !i.Intent.RestartPending
	if !m.Placed(i) {
		if stopped {
			return done(fmt.Sprintf("a user stopped it, so it starts on node %s when a user starts it", m.Target))
		}
		if d, over := in.over(); over {
			return d
		}
		limit := m.StepAt.Add(move.PlaceFor)
		if !limit.After(now) {
			_, why := i.Why()
			return in.back(move.Failed, fleet.ReasonNoNodeFits, fmt.Sprintf("node %s could not take it for %v: %s", m.Target, move.PlaceFor, why))
		}
		return Decision{Verb: Wait, Message: fmt.Sprintf("it waits for its place on node %s", m.Target), Wake: limit}
	}
	limit := m.StepAt.Add(move.StartFor)
	switch ran := i.Status != nil && i.Status.Generation > m.Generation; {
	case ran && i.State() == fleet.Online:
		return done("")
	case ran && i.Terminal():
		_, why := i.Why()
		return done(fmt.Sprintf("it ended on node %s before it was ONLINE (%s); node %s keeps its copy for %v", m.Target, why, m.Source, move.KeepFor))
	case !limit.After(now):
		return done(fmt.Sprintf("it was not ONLINE on node %s after %v; node %s keeps its copy for %v", m.Target, move.StartFor, m.Source, move.KeepFor))
	}
	return Decision{Verb: Wait, Message: fmt.Sprintf("it starts on node %s", m.Target), Wake: limit}
}

// over ends a move that a user has cancelled, or whose nodes are gone, or whose drain was ended.
func (in Input) over() (Decision, bool) {
	m := in.Move
	switch {
	case m.CancelBy != "":
		return in.back(move.Canceled, fleet.ReasonRequested, "cancelled by "+m.CancelBy), true
	case m.Drain != "" && !in.drained():
		return in.back(move.Canceled, fleet.ReasonNodeReady, fmt.Sprintf("the drain of node %s was ended", m.Source)), true
	case in.Gone(m.Target, m.TargetUUID):
		return in.back(move.Failed, fleet.ReasonNodeDeleted, fmt.Sprintf("node %s was deleted", m.Target)), true
	case m.Step != move.Starting && in.Gone(m.Source, m.SourceUUID):
		return in.back(move.Failed, fleet.ReasonDataLost, fmt.Sprintf("node %s was deleted with the data", m.Source)), true
	}
	return Decision{}, false
}

// drained reports whether the source is still being drained, and its static instances shall move.
func (in Input) drained() bool { return in.Drain != nil && in.Drain.MoveStatic }

// back ends a move with the data on the source. An instance that ran starts there again, unless the
// source is being drained. Then it is down until the drain is ended.
func (in Input) back(to move.Step, why fleet.Reason, detail string) Decision {
	m, intent := *in.Move, in.Instance.Intent
	m.Step, m.Reason, m.Detail = to, why, detail
	changed := false
	if in.Move.Step == move.Starting {
		intent.MovesTo, changed = nil, true
	}
	switch runs := intent.Desired == fleet.DesiredRunning || intent.RestartPending; {
	case m.Drain != "" && in.drained() && !in.Instance.HoldsNode() && (runs || in.stopped()):
		intent.Desired, intent.RestartPending, changed = fleet.DesiredStopped, false, true
		intent.Stop = &fleet.StopRequest{By: m.By, Reason: fleet.ReasonNodeDrained, Message: detail}
	case in.stopped() && !intent.RestartPending:
		intent.RestartPending, changed = true, true
	}
	if r := intent.Retire; r != nil && r.Reason == fleet.ReasonMoved {
		intent.Retire, changed = nil, true
	}
	d := Decision{Verb: Write, Move: &m, Message: detail}
	if changed {
		d.Intent = &intent
	}
	return d
}

// stopped reports whether the instance was stopped for the move, and not by a user.
func (in Input) stopped() bool {
	intent := &in.Instance.Intent
	return intent.Desired == fleet.DesiredStopped && intent.Stop != nil && intent.Stop.Reason == fleet.ReasonMoved
}
