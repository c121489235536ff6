// Package operate holds what can be done to the fleet: the operations all dialects
// share, each said once.
//
// An operation reads a snapshot, decides, and commits one transaction that compares
// everything the decision rests on, with the audit entry in it; then it waits until
// the view shows the result, so that whoever asked reads his own write.
//
// Invariants:
//
//   - A refused operation leaves no trace: it is checked before anything is written.
//   - Who loses a race decides anew from a fresh snapshot, a bounded number of
//     times; with an If-Match he is told instead.
//   - Nobody waits for etcd for more than a few seconds; see InTime.
//   - The gateway writes intent only: groups, instances' intents with their names
//     and plans, wishes for nodes. It orders no process and places nothing.
//   - Operations on one group take turns within a gateway; across gateways the
//     store's comparisons decide.
package operate
