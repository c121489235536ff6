package place

import (
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

const (
	// FailureWindow is how long a failure counts.
	FailureWindow = 5 * time.Minute
	// failuresAvoided is how many failures of one revision of a group make it avoid a node.
	failuresAvoided = 5
	// maxFailures bounds the failures known of a node; the oldest go first.
	maxFailures = 64
	// expireEvery bounds the work when much fails at once.
	expireEvery = time.Second
	// failurePenalty is worse than anything the other parts can make good: they are at
	// most 1 together, and preferences at most 1 each.
	failurePenalty = -1000 * unit
)

// failure is that an instance crashed or could not be started.
type failure struct {
	group    fleet.GroupName
	revision int64
	at       time.Time
}

// Failed notes that an instance of a group's revision crashed on a node or could
// not be started there. A node where that happened five times within FailureWindow
// is avoided by that revision, not forbidden.
func (m *Model) Failed(node fleet.NodeID, g fleet.GroupName, revision int64, at time.Time) {
	n := m.node(node)
	if len(n.failures) == 0 {
		m.failing = append(m.failing, n)
	}
	before := n.fails(g, revision)
	keep := slices.Clone(n.failures) // others may share it
	if len(keep) == maxFailures {
		keep = slices.Delete(keep, 0, 1)
	}
	n.failures = append(keep, failure{g, revision, at})
	if !before && n.fails(g, revision) {
		m.newFacts(n)
	}
}

// Expire forgets the failures that are older than FailureWindow. It looks once in
// expireEvery at most.
func (m *Model) Expire(now time.Time) {
	if len(m.failing) == 0 || now.Before(m.expired.Add(expireEvery)) {
		return
	}
	m.expired = now
	m.failing = slices.DeleteFunc(m.failing, func(n *Node) bool {
		var keep []failure
		for _, f := range n.failures {
			if f.at.Add(FailureWindow).After(now) {
				keep = append(keep, f)
			}
		}
		if len(keep) < len(n.failures) {
			n.failures = keep
			m.newFacts(n)
			m.forget(n)
		}
		return len(keep) == 0
	})
}

// fails reports whether a group's revision failed too often on the node.
func (n *Node) fails(g fleet.GroupName, revision int64) bool {
	count := 0
	for i := range n.failures {
		if f := &n.failures[i]; f.revision == revision && f.group == g {
			count++
		}
	}
	return count >= failuresAvoided
}
