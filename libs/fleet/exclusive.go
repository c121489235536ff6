package fleet

import "time"

// Exclusive reports whether two copies of the instance must never run at once
// although its data is reachable from more than one node: its group is static and
// is placed elsewhere when its node is lost. Such an instance runs only as long as
// its node's deadline has not passed: a TTL after the session's last confirmed keep-alive was sent.
func (p Plan) Exclusive() bool { return p.Static && p.OnNodeLoss == NodeLossReplace }

// ExclusiveMargin is the one number both sides of an exclusive instance keep to,
// given the TTL of its node's session: the node begins to stop the instance that
// long before the deadline and has killed it when half of that is
// over. The session may disappear at any time in between, since etcd may end it early.
// So whoever places the instance anew waits a TTL and the margin after that.
//
//	keep-alive sent            stop begins   killed     deadline
//	├───────────── ttl - m ────────┼── m/2 ────┼── m/2 ────┤
//	        │ session gone                                              placed anew
//	        └──────────────────────── ttl + m ───────────────────────────────┤
//
// A third of the TTL, because keep-alives are sent every third: one may be lost
// before anything is stopped. At least a second, so that a server has time for its
// last words and a busy machine for a kill; but at most half of the TTL, since an
// instance that is always about to be stopped is of no use. The half after the kill
// is for a machine that is slow to kill, and the margin in the wait for what
// nobody on the node controls: clocks that run at different speeds, and a kernel
// that needs time to let a process go.
func ExclusiveMargin(ttl time.Duration) time.Duration {
	return min(max(ttl/3, time.Second), ttl/2)
}
