package controller

import (
	"sync"
	"time"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// outageFor is how long a lost node counts towards a mass outage. After that, its instances
// are replaced like those of any other lost node.
const outageFor = time.Hour

// outages remembers since when nodes have no session, measured by this process's clock.
// Forgetting it, as in a restart, only makes the waits start again. So it also forgets
// whenever it may have missed a session in between.
type outages struct {
	stamps *stamps

	mu    sync.Mutex
	since map[fleet.NodeID]time.Time
	// rev is the revision up to which all changes have been seen.
	rev int64
	// massUntil is when the latest mass outage was last seen.
	massUntil time.Time
}

func newOutages(st *stamps) *outages {
	return &outages{stamps: st, since: map[fleet.NodeID]time.Time{}}
}

// heard processes a batch.
func (o *outages) heard(b *view.Batch, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rev = b.After.Rev
	if b.Relisted { // a session that came and went meanwhile left no trace
		clear(o.since)
	}
	for i := range b.Changes {
		switch ch := &b.Changes[i]; {
		case ch.Kind == view.KindSession && ch.Key[0] == "node" && ch.After == nil:
			o.since[fleet.NodeID(ch.Key[1])] = now
		case ch.Kind == view.KindSession && ch.Key[0] == "node":
			delete(o.since, fleet.NodeID(ch.Key[1]))
		case (ch.Kind == view.KindNode || ch.Kind == view.KindNodeDesired) && ch.After == nil: // the end of a deletion
			delete(o.since, fleet.NodeID(ch.Key[0]))
		}
	}
}

// of returns since when a node has no session in a snapshot; zero when it has one. In a
// snapshot ahead of the processed batches it returns now, because the loss may be new.
func (o *outages) of(s *view.Snapshot, n fleet.NodeID, now time.Time) time.Time {
	if _, alive := s.NodeSessions.Get(n); alive {
		return time.Time{}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.Rev > o.rev {
		return now
	}
	since, known := o.since[n]
	if !known {
		since = now
		o.since[n] = since
	}
	return since
}

// count returns how many nodes are alive or were lost recently, and how many of these are
// lost. Retired nodes and nodes lost long ago do not count.
func (o *outages) count(s *view.Snapshot, now time.Time, l plan.Limits) plan.Outage {
	if n := s.Nodes.Len(); n <= s.NodeSessions.Len() {
		return plan.Outage{Nodes: n} // fast path: no node is lost
	}
	var out plan.Outage
	for n := range s.Nodes.All() {
		since := o.of(s, n, now)
		switch {
		case since.IsZero():
			out.Nodes++
		case now.Sub(since) < outageFor && o.missed(s, n, now):
			out.Nodes++
			out.Lost++
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if out.Mass(l) {
		o.massUntil = now
	}
	out.MassUntil = o.massUntil
	return out
}

// missed reports whether a lost node holds an instance that was not reported as lost long
// ago. After a restart of this process, this tells a newly lost node from a retired one.
func (o *outages) missed(s *view.Snapshot, n fleet.NodeID, now time.Time) bool {
	for i := range s.NodeInstances(n) {
		if !i.HoldsNode() {
			continue
		}
		if i = o.stamps.instance(i, now); !i.Lost() && !i.Stranded() || now.Sub(i.Status.ChangedAt) < outageFor {
			return true
		}
	}
	return false
}
