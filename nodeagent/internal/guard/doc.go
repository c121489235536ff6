// Package guard runs and is the small process that stands beside each exclusive
// instance and kills it when its node's deadline has passed, although the agent is
// dead, stopped or out of its mind.
//
//	agent ──starts──▶ guard ──"ready"──▶ agent starts the instance ──its identity──▶ guard
//	                    │
//	                    ├─ the instance has gone ───────────────▶ exits
//	                    ├─ the deadline has passed ─▶ note, kill, exits
//	                    └─ the agent died before it told whom to guard ─▶ kill, exits
//
// Invariants:
//   - An instance that is guarded is started after its guard and never without it.
//   - A guard outlives its agent. It reads the deadline from a file, see package
//     deadline, and needs nobody to be told when.
//   - At most one guard per instance: it holds a lock on a file beside the run's. An
//     agent ends the guard of one run before it starts the next.
//   - A guard kills what the runtime takes for the instance and nothing else: the
//     instance's control group, the session of a wrapper that it has found by pid and
//     start time, and what carries the instance's mark.
//   - A guard can act on a host without free memory, as far as the host lets it: see endure.
//   - That it kills for the deadline stands in a note beforehand, so that an agent
//     that comes back knows what happened.
//
// What it cannot do: stop an instance on a machine that was frozen as a whole, in
// the moment between its thaw and the guard's next step.
package guard
