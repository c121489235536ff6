package controller

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/scheduler/internal/pending"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// phase is the progress of an assumed placement.
type phase int

const (
	queued    phase = iota // decided, not sent
	sent                   // in progress; its comparisons decide
	committed              // etcd has answered; the view shows the outcome from revision rev on
	ended                  // shown by the view, or released
)

// entry is an assumed placement. The model is charged with it.
type entry struct {
	w *pending.Instance
	// instance is the instance as it was when the decision was made.
	instance *fleet.Instance
	plan     *fleet.Plan
	choice   place.Choice
	// dataUUID is the ID of the node's data directory, for a static instance.
	dataUUID string
	fence    store.Fence
	at       time.Time
	// seen is the revision of the state that led to the decision.
	seen int64
	// noted is the revision of the last note about the instance, or 0. The view may not show
	// that revision yet.
	noted int64
	// unsure is true when it is unknown whether a note was written.
	unsure bool
	phase  phase
	// rev is the revision from which on the view shows whether it was made.
	rev int64
}

// is reports whether a placement is the assumed one.
func (e *entry) is(p *fleet.Placement) bool {
	return p != nil && p.Node == e.choice.Node && p.Generation == e.instance.Intent.Generation && p.Port == e.choice.Port
}

// size returns an upper bound of the comparisons that the entry adds to its part.
func (e *entry) size() int {
	n := 3 // its intent, its placement, and its note if there is one
	if old := e.instance.Placement; old != nil && old.Node != e.choice.Node {
		n++
	}
	if e.plan.Static {
		n++
	}
	if e.instance.Moving() {
		n += 3
	}
	return n
}

// entryBytes is the approximate size in a request of a placement without values and
// additional ports. portBytes is that of an additional port without its name.
const entryBytes, portBytes = 768, 9

// bytes returns the entry's approximate size in a request.
func (e *entry) bytes() int {
	n := entryBytes
	for k, v := range e.instance.Intent.Values {
		n += encoded(k) + encoded(v)
	}
	for name := range e.choice.Ports {
		n += len(name) + portBytes
	}
	return n
}

// encoded returns the length of a string in JSON, without the quotes.
func encoded(s string) int {
	n := len(s)
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c == '<', c == '>', c == '&': // escaped as in \u003c
			n += 5
		case c == '"', c == '\\':
			n++
		}
	}
	return n
}

// nodeQueue holds the queued placements of one node. Each part of a bulk compares and updates
// the node's alloc key, so only one part per queue is in progress.
type nodeQueue struct {
	node   fleet.NodeID
	queued []*entry
	busy   bool
	// rev is the alloc key's revision from our last answer; 0 when the view's is the
	// newest.
	rev int64
	// since is the revision that the view must reach before the queue may be sent, after a
	// lost comparison.
	since int64
	// listed is true while the queue is in one of the committer's lists.
	listed bool
}

// restart drops the queue, which was planned from another state.
func (l *nodeQueue) restart(rewound bool) {
	l.queued = nil
	if rewound {
		l.rev, l.since = 0, 0
	}
}

func (s *state) queueOf(n fleet.NodeID) *nodeQueue {
	l := s.queues[n]
	if l == nil {
		l = &nodeQueue{node: n}
		s.queues[n] = l
	}
	return l
}

// forget deletes an idle queue whose node no longer exists.
func (s *state) forget(l *nodeQueue) {
	if l.busy || l.listed || len(l.queued) > 0 {
		return
	}
	if _, known := s.snap.Nodes.Get(l.node); !known {
		delete(s.queues, l.node)
	}
}

// allocRev returns the newest known revision of a node's alloc key, from the view or from
// our own answers. The model includes all placements up to it.
func (s *state) allocRev(l *nodeQueue) int64 {
	if a, ok := s.snap.Allocs.Get(l.node); ok {
		return max(a.ModRev, l.rev)
	}
	return l.rev
}

// nodeRev returns the revision of a node's record, or 0 without a record.
func (s *state) nodeRev(n fleet.NodeID) int64 {
	if node, ok := s.snap.Nodes.Get(n); ok {
		return node.ModRev
	}
	return 0
}

// assume queues a decision. The model is already charged with it; assume charges the
// ledger.
func (s *state) assume(e *entry) *nodeQueue {
	id := e.instance.Intent.ID
	h := &e.choice.Hold
	s.ledger.Charge(h.Node, h.Group, h.Resources)
	s.spreadChanged(h.Group)
	delete(s.waiters, id)
	s.assumed[id] = e
	s.queued++
	l := s.queueOf(e.choice.Node)
	l.queued = append(l.queued, e)
	return l
}

// end removes an assumption and leaves the charges in place.
func (s *state) end(e *entry) {
	if e.phase == ended {
		return
	}
	e.phase = ended
	delete(s.assumed, e.instance.Intent.ID)
}

// release undoes an assumption. Its instance waits again if it still needs a placement.
func (s *state) release(e *entry) {
	if e.phase == ended {
		return
	}
	s.end(e)
	s.discharge(e.choice.Hold)
	s.capacityVersion++
	s.requeue(e.w)
}

// cancel releases a decision that was not sent.
func (s *state) cancel(e *entry) {
	s.queued--
	s.release(e)
}

// cancelQueued releases the queued decisions for a node that has changed since.
func (s *state) cancelQueued(n fleet.NodeID) {
	l := s.queues[n]
	if l == nil {
		return
	}
	entries := l.queued
	l.queued = nil
	for _, e := range entries {
		if e.phase == queued {
			s.cancel(e)
		}
	}
	s.forget(l)
}
