// Package store is the only door to etcd: keys, codecs, fenced transactions,
// sessions, shard ownership, and a list-and-watch that survives compaction.
//
// Invariants:
//
//   - Every write is a transaction with a comparison of its own key; there is no
//     way to write without one. Writes made because somebody owns something carry
//     a Fence as well: a comparison of the ownership key's create-revision, so a
//     paused or partitioned former owner cannot write, whatever its clock says.
//   - A write whose answer was lost is read back before anything is concluded.
//   - A Follower never skips a revision: it lists at one revision, watches from
//     the next, and lists again when history was compacted. Who asks how far its watch
//     has come shares no stream with others: the answer could be taken for theirs.
//   - A Client that has joined a cluster writes to no other and follows no other:
//     every transaction compares the meta record. An etcd that went back in time is
//     noticed by its revision, term or identity, and then everything is listed anew.
//
// It does not decide anything and does not know what the records mean.
package store
