// Package view maintains an immutable snapshot of the fleet from one watch over store.Root, and
// notifies subscribers of changes.
//
// Invariants:
//
//   - A Snapshot is the state at exactly one revision, Rev: complete, consistent across all kinds, and never changed after publication. Readers need no lock.
//   - Snapshots only move forward, also across a relist. The only exception is an etcd that itself went back in time; the batch says so.
//   - Subscribers receive every change once, in order of revision, with the record before and after, from one goroutine. A relist is delivered as the difference to the known state.
//   - When a wait for a revision returns, every subscriber has received it.
//
// Cost: a change takes time in proportion to its own size (copy-on-write trees), not to the size
// of the fleet.
package view
