// Package machine decides what happens to one instance on its node: a pure
// function from a state and an event to the next state and the effects somebody
// else performs.
//
//	  Placed
//	    ▼
//	preparing ──▶ launching ──▶ starting ──▶ online
//	    │             │            │  ▲         │
//	    │         barred           │  └ waiting ◀┤ crashed, started again in place
//	    ▼             ▼            ▼            ▼
//	───────────────── stopping ────────────▶ ended ◀── doubtful
//
// Waiting is the pause before the next run in place, or before another try of a start
// that failed for a cause that may pass. After three such tries the generation is FAILED.
// Doubtful is a crash that the store may not know yet: once it does the instance has
// ended and others replace it; if it cannot be told, the agent starts it again by
// itself, so that a fleet without its store keeps running.
//
// A server that serves no more is brought down like one that somebody stops, but what
// follows is what follows a crash; meanwhile it keeps its state and says why.
//
// An exclusive instance (fleet.Plan.Exclusive) lives by its node's session: it is
// stopped when that is about to expire, never started again here for want of the
// store, and barred from launching until there is a session.
//
// An end that nobody asked for is noted among the state's Unrecorded, whatever follows
// it, until it was written down for the store. A shell that at once says that there is
// no such command ends the generation as FAILED: trying again here does not help.
//
// Invariants:
//   - A process is launched only while none of the instance can live (Alive is
//     false), whatever its generation.
//   - Ended is left only by a higher generation. A generation begins only after the
//     one before it has ended; lower ones are ignored for ever.
//   - Every helper (preparing, launching, adopting) answers exactly once. While one
//     is out, nothing else touches the instance's files or processes; a stop calls it
//     off and waits for the answer.
//   - An answer that carries another run's number changes nothing.
//
// The package does not know how anything is done, and reads no clock.
package machine
