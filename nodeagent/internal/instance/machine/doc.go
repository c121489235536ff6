// Package machine decides what happens to one instance on its node. It is a pure
// function from a state and an event to the next state and the effects that the driver
// performs.
//
//	  Placed
//	    ▼
//	preparing ──▶ launching ──▶ starting ──▶ online
//	    │             │            │  ▲         │
//	    │     awaiting session     │  └ waiting ◀┤ crashed, started again in place
//	    ▼             ▼            ▼            ▼
//	───────────────── stopping ────────────▶ ended ◀── unconfirmed
//
// Waiting is the pause before the next run in place, or before the next attempt of a start
// that failed for a temporary cause. After three attempts the generation is FAILED.
// In unconfirmed the instance has crashed and its crash is not yet written to the store. Once
// it is written, the generation ends and the control plane replaces the instance. If it
// cannot be written, the agent restarts the instance itself, so that a fleet keeps running
// without its store.
//
// The agent stops an unhealthy server as an operator would, but handles its end like a
// crash. Meanwhile it keeps its state, and its reason says why it stops.
//
// An exclusive instance (fleet.Plan.Exclusive) depends on its node's session. It is stopped
// before the session expires, it is not restarted here while the store is unavailable, and
// it waits with its launch until there is a session.
//
// Every unrequested end is in the state's Unrecorded until it is recorded for the store. If the shell reports at once that the command does not exist, the
// generation is FAILED, because a restart does not help.
//
// Invariants:
//   - A process is launched only while no process of the instance can be alive (Alive is
//     false), whatever its generation.
//   - Only a higher generation follows Ended. A generation begins after the previous one
//     has ended; lower generations are ignored.
//   - Every helper (preparing, launching, adopting) answers exactly once. While one is
//     pending, nothing else touches the instance's files or processes. A stop cancels it
//     and waits for its answer.
//   - An answer with another run's number changes nothing.
//
// The package performs no I/O and reads no clock.
package machine
