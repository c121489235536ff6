package fleet

import "slices"

// State is the state of an instance.
//
//	PENDING → PREPARING → STARTING → ONLINE → STOPPING → STOPPED or SLEEPING
//	              │           │         │         └─────→ STOPPED
//	              └───────────┴─────────┴→ CRASHED or FAILED
//	any state with a placement → OFFLINE while the node is lost, and back
type State string

// The states.
const (
	Unplaced  State = "PENDING"   // no placement yet
	Preparing State = "PREPARING" // the directory is being built
	Starting  State = "STARTING"  // the process runs, not ready
	Online    State = "ONLINE"    // ready
	Stopping  State = "STOPPING"  // asked to stop
	Stopped   State = "STOPPED"   // ended as asked, or by itself with code 0
	Crashed   State = "CRASHED"   // ended by itself otherwise
	Failed    State = "FAILED"    // could not be built or started
	Sleeping  State = "SLEEPING"  // stopped because it was empty; keeps its place, ports and directory
	Offline   State = "OFFLINE"   // its node is lost
)

// States lists every state.
var States = [...]State{Unplaced, Preparing, Starting, Online, Stopping, Stopped, Crashed, Failed, Sleeping, Offline}

// Terminal reports whether the generation has ended.
func (s State) Terminal() bool {
	switch s {
	case Stopped, Crashed, Failed:
		return true
	case Unplaced, Preparing, Starting, Online, Stopping, Sleeping, Offline:
		return false
	}
	return false
}

// Running reports whether a process may exist in this state on a reachable node.
func (s State) Running() bool {
	switch s {
	case Starting, Online, Stopping:
		return true
	case Unplaced, Preparing, Stopped, Crashed, Failed, Sleeping, Offline:
		return false
	}
	return false
}

// Text returns the state as a phrase whose subject is the instance. It avoids the state names,
// because the APIs name states differently.
func (s State) Text() string {
	switch s {
	case Unplaced:
		return "has no node yet"
	case Preparing:
		return "is being prepared"
	case Starting:
		return "is starting"
	case Online:
		return "runs"
	case Stopping:
		return "is stopping"
	case Stopped:
		return "has stopped"
	case Crashed:
		return "has crashed"
	case Failed:
		return "has failed"
	case Sleeping:
		return "is asleep"
	case Offline:
		return "is on a lost node"
	}
	return "is " + string(s)
}

// next lists the transitions an agent may report within one generation.
var next = map[State][]State{
	Preparing: {Starting, Online, Stopping, Stopped, Crashed, Failed, Sleeping, Offline},
	Starting:  {Online, Stopping, Stopped, Crashed, Failed, Sleeping, Offline},
	Online:    {Starting, Stopping, Stopped, Crashed, Failed, Sleeping, Offline},
	Stopping:  {Stopped, Crashed, Failed, Sleeping, Offline},
	Sleeping:  {Stopped, Offline},
	Offline:   {Preparing, Starting, Online, Stopping, Stopped, Crashed, Failed, Sleeping},
}

// CanBecome reports whether state t may follow state s in the same generation. Nothing follows a
// terminal state.
func (s State) CanBecome(t State) bool {
	return slices.Contains(next[s], t)
}
