package controller

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// phase is how far an assumed placement has come.
type phase int

const (
	queued phase = iota // decided, not sent
	sent                // under way: its comparisons decide
	made                // etcd has answered; the view shows from revision rev on what came of it
	over                // shown by the view, or released
)

// entry is a placement that is assumed: the model is charged with it.
type entry struct {
	w *waiter
	// instance is what it was decided from.
	instance *fleet.Instance
	plan     *fleet.Plan
	choice   place.Choice
	// dataUUID is of the node's data directory, for a static instance.
	dataUUID string
	fence    store.Fence
	at       time.Time
	// seen is the revision of the state it was decided from.
	seen int64
	// noted is the revision of the last note written about it, which the view may not have yet; 0 when none was.
	noted int64
	// unsure is true when nobody knows whether one was.
	unsure bool
	phase  phase
	// rev is the revision from which on the view shows whether it was made.
	rev int64
}

// is reports whether a placement is the one that was assumed.
func (e *entry) is(p *fleet.Placement) bool {
	return p != nil && p.Node == e.choice.Node && p.Generation == e.instance.Intent.Generation && p.Port == e.choice.Port
}

// size is how many comparisons it adds to its node's part.
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

// entryBytes is about what a placement without values and additional ports takes of a
// request, portBytes what such a port does beside its name.
const entryBytes, portBytes = 768, 9

// bytes is about what it takes of a request.
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

// encoded is how long a text is in JSON, without the quotes.
func encoded(s string) int {
	n := len(s)
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c == '<', c == '>', c == '&': // \u003c
			n += 5
		case c == '"', c == '\\':
			n++
		}
	}
	return n
}

// lane is a node on which placements are decided. Each part of a bulk compares and
// renews the node's alloc key, so one of them is under way at a time; the rest queue.
type lane struct {
	node   fleet.NodeID
	queued []*entry
	busy   bool
	// rev is the alloc key's revision as the last answer said; 0 when only the view knows it.
	rev int64
	// since is the revision the view has to reach before anything is sent: what a comparison was lost to.
	since int64
	// listed is true while it is among those that may be sent.
	listed bool
}

// restart empties the queue: what it holds was planned from another state.
func (l *lane) restart(rewound bool) {
	l.queued = nil
	if rewound {
		l.rev, l.since = 0, 0
	}
}

func (s *state) lane(n fleet.NodeID) *lane {
	l := s.lanes[n]
	if l == nil {
		l = &lane{node: n}
		s.lanes[n] = l
	}
	return l
}

// forget lets a lane go whose node is gone, once nothing is on its way there.
func (s *state) forget(l *lane) {
	if l.busy || l.listed || len(l.queued) > 0 {
		return
	}
	if _, known := s.snap.Nodes.Get(l.node); !known {
		delete(s.lanes, l.node)
	}
}

// allocRev is the revision of a node's alloc key that the model is abreast of: the
// newest of what the view shows and what own answers said.
func (s *state) allocRev(l *lane) int64 {
	if a, ok := s.snap.Allocs.Get(l.node); ok {
		return max(a.ModRev, l.rev)
	}
	return l.rev
}

// nodeRev is the revision of a node's record; 0 when there is none.
func (s *state) nodeRev(n fleet.NodeID) int64 {
	if node, ok := s.snap.Nodes.Get(n); ok {
		return node.ModRev
	}
	return 0
}

// assume queues a decision; the model has been charged with it, the ledger is now.
func (s *state) assume(e *entry) *lane {
	id := e.instance.Intent.ID
	h := &e.choice.Hold
	s.ledger.Charge(h.Node, h.Group, h.Resources)
	s.evened(h.Group)
	delete(s.waiters, id)
	s.assumed[id] = e
	s.queued++
	l := s.lane(e.choice.Node)
	l.queued = append(l.queued, e)
	return l
}

// end forgets an assumption; what the model is charged with stays.
func (s *state) end(e *entry) {
	if e.phase == over {
		return
	}
	e.phase = over
	delete(s.assumed, e.instance.Intent.ID)
}

// release takes back an assumption that did not come true. Its instance waits again, if it still needs a place.
func (s *state) release(e *entry) {
	if e.phase == over {
		return
	}
	s.end(e)
	s.discharge(e.choice.Hold)
	s.room++
	s.back(e.w)
}

// unplan takes back a decision that was not sent.
func (s *state) unplan(e *entry) {
	s.queued--
	s.release(e)
}

// replan takes back what is queued for a node: it was decided before the node changed.
func (s *state) replan(n fleet.NodeID) {
	l := s.lanes[n]
	if l == nil {
		return
	}
	entries := l.queued
	l.queued = nil
	for _, e := range entries {
		if e.phase == queued {
			s.unplan(e)
		}
	}
	s.forget(l)
}
