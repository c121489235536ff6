// Package view keeps an immutable snapshot of the fleet, fed by one watch over
// everything under store.Root, and tells subscribers what changed.
//
// Invariants:
//
//   - A Snapshot is the state at exactly one revision, Rev: complete, consistent
//     across all kinds, and never changed after it was published. Readers need no lock.
//   - Snapshots only move forward, also across a relist. The one exception is an
//     etcd that went back in time itself; the batch says so.
//   - Subscribers hear every change once, in order of revision, with the record
//     before and after, from one goroutine; a relist is delivered as the
//     difference to what was known.
//   - Whoever waited for a revision finds that every subscriber has heard it.
//
// Cost: a change costs time in proportion to its own size (copy-on-write trees),
// not to the fleet's.
package view
