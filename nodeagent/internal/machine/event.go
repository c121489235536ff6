package machine

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Event is something that happened to an instance.
type Event interface{ event() }

// Placed brings a placement of the instance on this node; repeated ones do no harm.
type Placed struct{ Placement fleet.Placement }

// Removed says that the placement's record is gone.
type Removed struct{}

// Ordered brings an order; those of other generations are kept or ignored.
type Ordered struct{ Order fleet.Order }

// StoppedLocally brings an order that was given on the node itself, past the
// store: it stops whatever generation there is, and nothing starts it again here.
type StoppedLocally struct {
	// Force ends it at once instead of asking.
	Force bool
	// By is who asked, as a person is to read it.
	By string
}

// Shutdown asks for a graceful end because the agent shall take its instances along.
type Shutdown struct{}

// Recovered is the first event after a state was read from the journal: whatever
// was under way then is taken up again.
type Recovered struct{}

// Prepared answers Prepare.
type Prepared struct {
	Run  int
	Plan fleet.Plan
	// HostAddress is the advertised address, placeholders resolved.
	HostAddress string
	// TokenHash is the SHA-256 of the instance's own token, hex.
	TokenHash string
	// Notes is what its operator should know about the directory; may be empty.
	Notes string
}

// Failed answers Prepare, or Launch when no process was started.
type Failed struct {
	Run     int
	Reason  fleet.Reason
	Message string
	// Away is true when the runtime does not answer, as while somebody restarts it.
	Away bool
}

// Delayed says that Launch waits for a port that leftover connections hold.
type Delayed struct {
	Run     int
	Message string
}

// Started answers Launch.
type Started struct {
	Run int
	PID int
	At  time.Time
}

// Found answers Adopt: the process lives.
type Found struct {
	Run int
	PID int
}

// Lost answers Adopt: nothing is left of the process and nobody knows its end.
type Lost struct {
	Run int
	// Rebooted is true when the host was restarted since.
	Rebooted bool
	// Expired is true when its guard ended it, since the deadline was near.
	Expired bool
}

// Withheld answers Launch of an exclusive instance while the node has no session:
// nothing was started.
type Withheld struct{ Run int }

// Admitted says that the node has a session again. Answer to AwaitSession.
type Admitted struct{ Run int }

// Expiring says that the node's session may be over soon. With Force it may be over
// any moment, or is. It concerns exclusive instances only.
type Expiring struct{ Force bool }

// Unguarded says that an exclusive instance's guard has gone and cannot be replaced.
type Unguarded struct {
	Run     int
	Message string
}

// Ready says that the readiness check passed.
type Ready struct{ Run int }

// Unhealthy says that a server that was ready serves no more. Answer to Watch, as often
// as it becomes so.
type Unhealthy struct {
	Run     int
	Message string
}

// Healthy says that it serves again.
type Healthy struct{ Run int }

// Overgrown says that the instance's directory holds more than its plan allows.
type Overgrown struct {
	Run     int
	Message string
}

// Exited says that the process and all it started are gone. It may also answer Adopt.
type Exited struct {
	Run  int
	Exit fleet.Exit
	At   time.Time
	// Ran is how long it ran by a clock that nobody sets; 0 when that is not known.
	Ran time.Duration
	// Expired is true when its guard ended it, since the deadline was near.
	Expired bool
	// Refused is set when the shell says that it could not run the command.
	Refused *Refusal
}

// Refusal is why a command could not be run.
type Refusal struct {
	Reason  fleet.Reason
	Message string
}

// Recorded says that an end among State.Unrecorded was written down for the store.
type Recorded struct{ ID string }

// Elapsed says that a timer has run out.
type Elapsed struct {
	Run   int
	Timer Timer
	// Why is what kept the server from being ready, of a StartTimer; empty when nobody knows.
	Why string
}

// Settled says that a final status stands in the store.
type Settled struct{ Generation int64 }

// Unsettled says that a status could not be written for a while.
type Unsettled struct{ Generation int64 }

// Superseded says that the store holds a final status of this generation that
// somebody else wrote: its process has no right to run.
type Superseded struct{ Generation int64 }

func (Placed) event()         {}
func (Removed) event()        {}
func (Ordered) event()        {}
func (StoppedLocally) event() {}
func (Shutdown) event()       {}
func (Recovered) event()      {}
func (Prepared) event()       {}
func (Failed) event()         {}
func (Delayed) event()        {}
func (Started) event()        {}
func (Found) event()          {}
func (Lost) event()           {}
func (Withheld) event()       {}
func (Admitted) event()       {}
func (Expiring) event()       {}
func (Unguarded) event()      {}
func (Ready) event()          {}
func (Unhealthy) event()      {}
func (Healthy) event()        {}
func (Overgrown) event()      {}
func (Exited) event()         {}
func (Recorded) event()       {}
func (Elapsed) event()        {}
func (Settled) event()        {}
func (Unsettled) event()      {}
func (Superseded) event()     {}

// Effect is something to be done, in the order given.
type Effect interface{ effect() }

// Prepare builds the instance's directory. Answers: Prepared or Failed.
type Prepare struct{ Run int }

// Cancel cuts a Prepare or a Launch under way short; it still answers. A Launch that was
// cut short has ended what it cannot answer for with Started.
type Cancel struct{}

// Launch starts the process. Answers: Started, Withheld or Failed; later Exited.
type Launch struct{ Run int }

// Adopt looks for the process of an earlier agent. Answers: Found, Exited or Lost;
// after Found later Exited.
type Adopt struct{ Run int }

// AwaitSession asks for an Admitted once the node has a session.
type AwaitSession struct{ Run int }

// AwaitReady runs the readiness check. Answer: Ready, when it passes.
type AwaitReady struct{ Run int }

// Watch asks the server from time to time whether it still serves, as the plan's
// liveness says, until the run ends. Answers: Unhealthy, Healthy, as they come.
type Watch struct{ Run int }

// Stop begins the plan's stop sequence. It ends with Exited.
type Stop struct{}

// Kill ends everything at once, also within a stop sequence. It ends with Exited.
type Kill struct{}

// Wake asks for an Elapsed.
type Wake struct {
	Run   int
	Timer Timer
	After time.Duration
}

// Clear removes the directory unless the instance's group is static.
type Clear struct{}

// Forget removes everything kept about the instance; nothing follows it.
type Forget struct{}

func (Prepare) effect()      {}
func (Cancel) effect()       {}
func (Launch) effect()       {}
func (Adopt) effect()        {}
func (AwaitSession) effect() {}
func (AwaitReady) effect()   {}
func (Watch) effect()        {}
func (Stop) effect()         {}
func (Kill) effect()         {}
func (Wake) effect()         {}
func (Clear) effect()        {}
func (Forget) effect()       {}

// Timer tells timers apart.
type Timer string

// The timers.
const (
	StartTimer    Timer = "start"    // readiness is overdue
	RestartTimer  Timer = "restart"  // the next run in place is due
	LifetimeTimer Timer = "lifetime" // the run has lasted as long as the plan lets one last
)
