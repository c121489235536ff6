// Package store is the only access to etcd: keys, codecs, fenced transactions, sessions, shard
// ownership, and a list-and-watch that survives compaction.
//
// Invariants:
//
//   - Every write is a transaction that compares the revision of its own key. A write that requires an ownership also carries a Fence: it compares the create-revision of the ownership key, so a paused or partitioned former owner cannot write, regardless of its clock.
//   - If the answer to a write was lost, the keys are read back before the outcome is reported.
//   - A follower never skips a revision: it lists at one revision, watches from the next, and lists again when the history was compacted. A watch that requests its progress has its own stream, because the answer could be attributed to other watches of the stream.
//   - A Client that has joined a cluster neither writes to nor follows another one: every transaction compares the meta record. If etcd went back in time (its revision, term or identity shows it), everything is listed again.
//
// The package makes no decisions and does not know the meaning of the records.
package store
