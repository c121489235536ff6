package place

import (
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

const (
	// FailureWindow is how long a failure counts against a node.
	FailureWindow = 5 * time.Minute
	// failuresAvoided is how many failures of one group revision make that revision avoid
	// the node.
	failuresAvoided = 5
	// maxFailures bounds the failures stored per node; the oldest are dropped first.
	maxFailures = 64
	// expireEvery is the shortest time between two scans by Expire.
	expireEvery = time.Second
	// failurePenalty outweighs all other parts: they add up to at most 1, plus at most 1
	// per preference.
	failurePenalty = -1000 * unit
)

// failure is a crash or a failed start of an instance.
type failure struct {
	group    fleet.GroupName
	revision int64
	at       time.Time
}

// Failed records that an instance of a group's revision crashed or could not start on a
// node. Five failures within FailureWindow make that revision avoid the node. It may still
// use the node when no other fits.
func (m *Model) Failed(node fleet.NodeID, g fleet.GroupName, revision int64, at time.Time) {
	n := m.node(node)
	if len(n.failures) == 0 {
		m.failing = append(m.failing, n)
	}
	before := n.fails(g, revision)
	keep := slices.Clone(n.failures) // clones of the node may share the slice
	if len(keep) == maxFailures {
		keep = slices.Delete(keep, 0, 1)
	}
	n.failures = append(keep, failure{g, revision, at})
	if !before && n.fails(g, revision) {
		m.newFacts(n)
	}
}

// Expire drops the failures that are older than FailureWindow. It scans at most once per
// expireEvery.
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

// fails reports whether a group's revision failed on the node too often.
func (n *Node) fails(g fleet.GroupName, revision int64) bool {
	count := 0
	for i := range n.failures {
		if f := &n.failures[i]; f.revision == revision && f.group == g {
			count++
		}
	}
	return count >= failuresAvoided
}
