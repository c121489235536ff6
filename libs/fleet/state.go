package fleet

// State is where an instance is in its life.
//
//	PENDING → PREPARING → STARTING → ONLINE → STOPPING → STOPPED
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
	Offline   State = "OFFLINE"   // its node is lost
)

// States lists every state.
var States = [...]State{Unplaced, Preparing, Starting, Online, Stopping, Stopped, Crashed, Failed, Offline}

// Terminal reports whether nothing of the generation runs or will run.
func (s State) Terminal() bool {
	switch s {
	case Stopped, Crashed, Failed:
		return true
	case Unplaced, Preparing, Starting, Online, Stopping, Offline:
		return false
	}
	return false
}

// Running reports whether a process may exist in this state on a reachable node.
func (s State) Running() bool {
	switch s {
	case Starting, Online, Stopping:
		return true
	case Unplaced, Preparing, Stopped, Crashed, Failed, Offline:
		return false
	}
	return false
}

// Text tells the state in a sentence that begins with the instance. The dialects of the API
// have words of their own for states, so what all of them show has none of these.
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
	case Offline:
		return "is on a lost node"
	}
	return "is " + string(s)
}

// next holds the transitions an agent may report within one generation.
var next = map[State][]State{
	Preparing: {Starting, Online, Stopping, Stopped, Crashed, Failed, Offline},
	Starting:  {Online, Stopping, Stopped, Crashed, Failed, Offline},
	Online:    {Starting, Stopping, Stopped, Crashed, Failed, Offline},
	Stopping:  {Stopped, Crashed, Failed, Offline},
	Offline:   {Preparing, Starting, Online, Stopping, Stopped, Crashed, Failed},
}

// CanBecome reports whether a status of state s may be followed by state t in
// the same generation. Terminal states are followed by nothing.
func (s State) CanBecome(t State) bool {
	for _, n := range next[s] {
		if n == t {
			return true
		}
	}
	return false
}
