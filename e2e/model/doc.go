// Package model is an exhaustively checked model of the ownership and epoch protocol. It
// explores every order of the protocol's steps, every point at which a process can be
// paused, killed or cut off, and every lost answer. Only tests use it.
//
// The model contains the keys with their revisions; replicas that claim and lose shards and
// decide from views that may be old; agents with sessions, journals and guards; and the
// processes on the machines. docs/reference/protocol.md describes the same in prose.
//
//	Explore ──walks──▶ Machine ◀──is── Model ──of a──▶ Config, with its Safeguards
//
// The state space is finite without artificial bounds:
//
//   - Revisions and generations are renumbered in every state, because the protocol only
//     compares them.
//   - Memories without a possible effect are dropped: a transaction whose comparison can
//     never hold again, or a view that leads only to such transactions. Config.Plain turns
//     this off, and a test compares the verdicts.
//
// Time is a choice: whatever may take long may take forever. The model assumes three
// orderings, which an implementation must ensure:
//
//   - A deadline passes at most one TTL after the session's key disappeared, because a
//     keep-alive is confirmed only while the key exists.
//   - With the safeguard Deadline, the kill is sent before the deadline passes.
//   - A killed process is gone within the margin.
//
// When the key disappears is also a choice: it may be long before the owner's deadline.
//
// The model leaves out counts of instances, names, orders, templates and plans. It also
// leaves out machines that are frozen as a whole, and disks that lose written data.
package model
