// Package reconcile runs level-triggered control loops: keys go into a queue, and workers
// reconcile them one by one.
//
//	          Add                    worker takes it
//	 idle ──────────▶ ready ─────────────────────────▶ working
//	  │ ▲               ▲                                │ │
//	  │ └───────────────┼──────── done, nothing more ────┘ │
//	  │ AddAfter        │ Add while working: once again    │
//	  ▼                 └──────────────────────────────────┤
//	waiting ──due──▶ ready        Result.After, or error   │
//	  ▲                            (exponential back-off)  │
//	  └────────────────────────────────────────────────────┘
//
// Invariants:
//   - No wake-up is lost: after Add(k) a new reconciliation of k starts. After AddAfter(k, d) one starts after d at the latest.
//   - Wake-ups coalesce: a key is queued at most once.
//   - Two workers never work on the same key at once.
//   - A waiting key has one due time, the earliest requested. An Add in between does not cancel it.
//   - Nothing polls: one timer is set to the earliest due time.
//   - Keys are processed in the order in which they became ready.
//   - A panic is an error of its key, and its stack is logged. The loop continues.
//
// The queue holds no decisions, so its content may be lost at any time: a new loop adds all keys,
// and the resync adds them again regularly.
package reconcile
