// Package fleet contains the core of the domain: groups, instances and nodes. There is one file
// per noun with its type, its validation and its pure methods. Its subpackages contain the other
// records, such as content, account, players, reports and crashloop. compose makes plans, and drain decides
// about instances on draining nodes.
//
// # Glossary
//
//   - Group: what the operator declares. GroupSpec is its body.
//   - Intent: that one instance should exist and run (or stop). Enforcer and gateway write it.
//   - Plan: everything needed to build and start an instance. It is immutable; its key is its digest.
//   - Placement: where one generation of an instance runs. The scheduler writes it once.
//   - Order: what a placed instance must do now (stop, kill). The enforcer writes it.
//   - Status: what the agent observed. The agent writes it.
//   - Pending: why an instance has no placement. The scheduler writes it.
//   - Instance: all records of one instance joined, with its derived state.
//   - Node, NodeDesired, NodeSession: a host, the operator's wishes for it, its liveness.
//
// # Rules
//
// Records are values. Only the owner of a record edits it. Every record carries the revision it
// was read at (record.Rev), and every write compares it. Nothing here reads a clock, a file or
// the network; the caller passes the time.
package fleet
