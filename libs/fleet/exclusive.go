package fleet

import (
	"time"
)

// Exclusive reports whether two copies of the instance must never run at once although several
// nodes can reach its data: its group is static and moves to another node when its node is lost.
// Such an instance may run only until its node's deadline, which is one TTL after the last
// confirmed keep-alive was sent.
func (p Plan) Exclusive() bool { return p.Static && p.OnNodeLoss == NodeLossReplace }

// ExclusiveMargin returns the safety margin of exclusive instances for a session TTL. The node
// starts to stop the instance one margin before the deadline and has killed it when half the
// margin is over. etcd may end the session early, so the session may disappear at any time in
// between. The scheduler therefore waits a TTL plus the margin after the session is gone before it
// places the instance again.
//
//	keep-alive sent            stop begins   killed     deadline
//	├───────────── ttl - m ────────┼── m/2 ────┼── m/2 ────┤
//	        │ session gone                                              placed again
//	        └──────────────────────── ttl + m ───────────────────────────────┤
//
// The margin is a third of the TTL because keep-alives are sent every third: one may be lost
// before anything stops. It is at least a second, so that a server has time to shut down and a
// busy machine has time to kill it. It is at most half of the TTL, so that an instance is not
// stopped all the time. The half after the kill covers a machine that is slow to kill. The margin
// in the wait covers clocks that run at different speeds and a kernel that is slow to end a
// process.
func ExclusiveMargin(ttl time.Duration) time.Duration {
	return min(max(ttl/3, time.Second), ttl/2)
}
