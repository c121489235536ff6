// Package ops has the operations on the fleet that all HTTP dialects share. Each resource has a
// package of its own; Operations joins them.
//
// Invariants:
//
//   - An operation checks everything before it writes. A refused operation writes nothing.
//   - An operation that loses a race decides again on a fresh snapshot, a bounded number of times.
//     With If-Match it returns a txn.MovedError instead.
//   - An operation waits for etcd for a few seconds at most; see txn.InTime.
//   - When an operation returns, the view of this gateway shows its result.
//   - The gateway writes intent only: groups, the intents, names and plans of instances, and the
//     desired state of nodes. It places no instance and starts no process.
//   - Operations on one group run one after the other within a gateway. Across gateways, the
//     comparisons of the transaction decide.
package ops
