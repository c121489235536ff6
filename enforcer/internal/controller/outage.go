package controller

import (
	"sync"
	"time"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// outageFor is how long a lost node counts towards a mass outage: after that it is
// taken for dead, and what it held is replaced like any other's.
const outageFor = time.Hour

// outages remembers since when nodes have no session, by this process' own clock.
// Forgetting it, as a restart does, only makes the patience with them start anew.
type outages struct {
	mu    sync.Mutex
	since map[fleet.NodeID]time.Time
}

func newOutages() *outages { return &outages{since: map[fleet.NodeID]time.Time{}} }

// heard takes the news of a node's session.
func (o *outages) heard(n fleet.NodeID, alive bool, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if alive {
		delete(o.since, n)
		return
	}
	o.since[n] = now
}

// of is since when a node has no session in a snapshot; zero when it has one.
func (o *outages) of(s *view.Snapshot, n fleet.NodeID, now time.Time) time.Time {
	if _, alive := s.NodeSessions.Get(n); alive {
		return time.Time{}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	since, known := o.since[n]
	if !known {
		since = now
		o.since[n] = since
	}
	return since
}

// count says how much of the fleet was lost lately.
func (o *outages) count(s *view.Snapshot, now time.Time) plan.Outage {
	out := plan.Outage{Nodes: s.Nodes.Len()}
	if out.Nodes <= s.NodeSessions.Len() {
		return out // the common case costs nothing
	}
	for n := range s.Nodes.All() {
		if since := o.of(s, n, now); !since.IsZero() && now.Sub(since) < outageFor {
			out.Lost++
		}
	}
	return out
}
