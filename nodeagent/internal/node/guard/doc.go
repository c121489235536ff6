// Package guard implements the guard: a small process beside each exclusive instance that
// kills the instance when its node's deadline has passed, even if the agent is dead, stopped
// or stuck.
//
//	agent ──starts──▶ guard ──"ready"──▶ agent starts the instance ──its identity──▶ guard
//	                    │
//	                    ├─ the instance has exited ─────────────▶ exits
//	                    ├─ the deadline has passed ─▶ note, kill, exits
//	                    └─ the agent died before it sent the identity ─▶ kill, exits
//
// Invariants:
//   - An exclusive instance is started after its guard and never without one.
//   - A guard outlives its agent. It reads the deadline from a file (see package deadline)
//     and needs no other process.
//   - An instance has at most one guard, which holds a lock on a file in the run's
//     directory. An agent ends the guard of one run before it starts the next run.
//   - A guard kills what the runtime attributes to the instance and nothing else: its control
//     group, the session of a wrapper identified by PID and start time, and processes with
//     the instance's mark.
//   - A guard works on a host without free memory, as far as the host allows; see protect.
//   - Before it kills because of the deadline, it writes a note for the next agent.
//
// Limitation: if the whole machine is paused, an instance may run for a moment between the
// resume and the guard's next step.
package guard
