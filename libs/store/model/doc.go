// Package model is the protocol of ownership and epochs as a small program that is
// explored to the end: every order in which its steps can happen, every place where
// a process can be paused, killed or cut off, every answer that can be lost. It
// serves tests; nothing at run time uses it.
//
// Modelled are the keys with their revisions, replicas that claim and lose shards
// and decide from views that may be old, agents with sessions, journals and guards,
// and the processes on the machines. docs/protocol.md tells the same in prose.
//
//	Explore ──walks──▶ Machine ◀──is── Model ──of a──▶ Config, with its Safeguards
//
// How it is kept finite without bounding anything:
//
//   - Revisions and generations are renumbered in every state. The protocol only
//     asks which is equal or greater.
//   - What nothing can follow from is forgotten: a transaction whose comparison can
//     never hold again, a view from which only such follow. Config.Plain turns this
//     off, and a test compares the verdicts.
//
// Time is a choice: whatever may take long may take for ever. Three orderings are
// taken for granted, and are what an implementation has to deliver:
//
//   - A deadline passes at most a TTL after the session's key disappeared, because a
//     keep-alive is confirmed only while the key exists.
//   - With the deadline kept, the kill is sent before it passes.
//   - What was killed is gone within the margin.
//
// When the key disappears is another choice: also long before the owner's deadline.
//
// It does not model counts of instances, names, orders, templates or plans; a whole
// machine frozen and thawed; or a disk that forgets what was written to it.
package model
