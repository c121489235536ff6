package machine

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/sleep"
)

// Event is something that happened to an instance.
type Event interface{ event() }

// Placed contains a placement of the instance on this node. It may be repeated.
type Placed struct{ Placement fleet.Placement }

// Removed means that the placement was deleted.
type Removed struct{}

// Ordered contains an order. Orders of later generations are kept, others ignored.
type Ordered struct{ Order fleet.Order }

// StoppedLocally is an order given on the node itself without the store. It stops the
// current generation, and the agent does not start it again.
type StoppedLocally struct {
	// Force kills it at once.
	Force bool
	// By names who asked, for people.
	By string
}

// Shutdown requests a graceful end because the agent stops its instances when it exits.
type Shutdown struct{}

// Recovered is the first event after a state was read from the journal. It continues what was
// under way.
type Recovered struct{}

// Prepared answers Prepare.
type Prepared struct {
	Run  int
	Plan fleet.Plan
	// HostAddress is the advertised address after substitution of placeholders.
	HostAddress string
	// TokenHash is the hexadecimal SHA-256 of the instance's token.
	TokenHash string
	// Notes are warnings about the directory for its operator; may be empty.
	Notes string
}

// Failed answers Prepare, or Launch if no process was started.
type Failed struct {
	Run     int
	Reason  fleet.Reason
	Message string
	// Away is true if the runtime does not answer, as during its restart.
	Away bool
}

// Queued means that Prepare waits until fewer instances start on the node, or for a Reason of its own, or,
// with an empty Message, that the wait is over.
type Queued struct {
	Run     int
	Reason  fleet.Reason
	Message string
}

// Delayed means that Launch waits for a port that leftover connections or another instance occupy.
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

// Found answers Adopt: the process is alive.
type Found struct {
	Run int
	PID int
}

// Lost answers Adopt: the process is gone and its exit is unknown.
type Lost struct {
	Run int
	// Rebooted is true if the host was restarted since.
	Rebooted bool
	// Expired is true if its guard ended it because of the deadline.
	Expired bool
}

// NoSession answers Launch of an exclusive instance: the node has no session, and nothing was
// started.
type NoSession struct{ Run int }

// SessionReady answers AwaitSession: the node has a session.
type SessionReady struct{ Run int }

// Expiring means that the node's session may end soon. With Force it may end at any moment or
// has ended. It concerns exclusive instances only.
type Expiring struct{ Force bool }

// GuardLost means that an exclusive instance's guard exited and cannot be replaced.
type GuardLost struct {
	Run     int
	Message string
}

// Ready means that the readiness check passed.
type Ready struct{ Run int }

// Unhealthy answers Watch each time the server becomes unhealthy.
type Unhealthy struct {
	Run     int
	Message string
}

// Healthy answers Watch each time the server becomes healthy again.
type Healthy struct{ Run int }

// DiskExceeded means that the instance's directory is larger than its plan allows.
type DiskExceeded struct {
	Run     int
	Message string
}

// Exited means that the process and all its children are gone. It may also answer Adopt.
type Exited struct {
	Run  int
	Exit fleet.Exit
	At   time.Time
	// Ran is how long it ran by the monotonic clock; 0 if unknown.
	Ran time.Duration
	// Expired is true if its guard ended it because of the deadline.
	Expired bool
	// Refused is set if the shell reported that it could not run the command.
	Refused *Refusal
}

// Refusal says why a command could not be run.
type Refusal struct {
	Reason  fleet.Reason
	Message string
}

// Recorded means that a crash in State.Unrecorded is recorded.
type Recorded struct{ ID string }

// Elapsed means that a timer fired.
type Elapsed struct {
	Run   int
	Timer Timer
	// Why is what kept the server from becoming ready, for StartTimer; empty if unknown.
	Why string
}

// StatusWritten means that the generation's final status is written to the store.
type StatusWritten struct{ Generation int64 }

// StatusUnwritten means that the final status could not be written for a while.
type StatusUnwritten struct{ Generation int64 }

// Called means that something on the network asks the sleeping instance to wake.
type Called struct{ Call sleep.Call }

// Superseded means that another writer stored a final status of this generation, or that a
// later generation exists: its process must not run.
type Superseded struct{ Generation int64 }

func (Placed) event()          {}
func (Removed) event()         {}
func (Ordered) event()         {}
func (StoppedLocally) event()  {}
func (Shutdown) event()        {}
func (Recovered) event()       {}
func (Prepared) event()        {}
func (Failed) event()          {}
func (Queued) event()          {}
func (Delayed) event()         {}
func (Started) event()         {}
func (Found) event()           {}
func (Lost) event()            {}
func (NoSession) event()       {}
func (SessionReady) event()    {}
func (Expiring) event()        {}
func (GuardLost) event()       {}
func (Ready) event()           {}
func (Unhealthy) event()       {}
func (Healthy) event()         {}
func (DiskExceeded) event()    {}
func (Exited) event()          {}
func (Recorded) event()        {}
func (Elapsed) event()         {}
func (StatusWritten) event()   {}
func (StatusUnwritten) event() {}
func (Called) event()          {}
func (Superseded) event()      {}

// Effect is an action to perform. Effects are performed in order.
type Effect interface{ effect() }

// Prepare builds the instance's directory. Answer: Prepared or Failed.
type Prepare struct{ Run int }

// Cancel cancels a pending Prepare or Launch, which still answers. A canceled Launch answers
// with Started or has ended the process.
type Cancel struct{}

// Launch starts the process. Answer: Started, NoSession or Failed; later Exited.
type Launch struct{ Run int }

// Adopt looks for the process of an earlier agent. Answer: Found, Exited or Lost; after Found
// later Exited.
type Adopt struct{ Run int }

// AwaitSession waits until the node has a session. Answer: SessionReady.
type AwaitSession struct{ Run int }

// AwaitReady runs the readiness check. Answer: Ready, when it passes.
type AwaitReady struct{ Run int }

// Watch runs the plan's liveness check until the run ends. Answers: Unhealthy and Healthy,
// repeatedly.
type Watch struct{ Run int }

// Stop starts the plan's stop sequence. It ends with Exited.
type Stop struct{}

// Kill ends the process at once, also during a stop sequence. It ends with Exited.
type Kill struct{}

// Wake starts a timer. Answer: Elapsed.
type Wake struct {
	Run   int
	Timer Timer
	After time.Duration
}

// Clear removes the directory unless the instance's group is static.
type Clear struct{}

// Forget removes everything that is kept of the instance. No effect follows it.
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

// Timer names a timer.
type Timer string

// The timers.
const (
	StartTimer    Timer = "start"    // readiness is overdue
	RestartTimer  Timer = "restart"  // the next run in place is due
	LifetimeTimer Timer = "lifetime" // the run has reached the plan's maximum lifetime
)
