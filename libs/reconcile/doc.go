// Package reconcile runs level-triggered loops: keys that need a look go into a
// queue, workers reconcile them one by one.
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
//   - No wake-up is lost: after Add(k) a reconciliation of k begins, one that
//     began earlier does not count. After AddAfter(k, d) one begins d later at the latest.
//   - Wake-ups coalesce: however often k is added, it waits at most once.
//   - A key is never worked on by two workers at once.
//   - A waiting key has one due time, the earliest asked for. An Add in between
//     does not cancel it: what was asked for by then is still owed.
//   - Nothing polls: one timer, set to the earliest due time.
//   - Keys are taken in the order in which they became ready.
//   - A panic is an error of its key, with its stack in the log; the loop goes on.
//
// The queue holds no decision. All of it may be lost at any moment: whoever
// starts a loop adds all keys, and the resync adds them again now and then.
package reconcile
