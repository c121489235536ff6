package controller

import (
	"context"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

const (
	// depthLimit is how many transactions are under way at a time.
	depthLimit = 8
	// maxParts bounds the parts of one transaction where etcd would take more: what
	// etcd applies at once holds up everybody else.
	maxParts = 256
	// leastParts is what a transaction shrinks to where many schedulers meet.
	leastParts = 16
	// maxEntries bounds the placements of one transaction, so that it stays well below etcd's limit of a request.
	maxEntries = 1024
	// windowStep and windowLimit bound how many placements are decided ahead of being
	// sent. Several on one node share the write of its alloc key; but what another
	// scheduler does there meanwhile makes them be decided again.
	windowStep, windowLimit = 1024, 32 << 10
	// muchLost is the share of a transaction's parts, one in so many, from which on losses count as many.
	muchLost = 8
	// commitTimeout bounds one transaction.
	commitTimeout = 5 * time.Second
)

// pipe is what is to be sent, what is under way, and what came of it.
type pipe struct {
	// parts and size are what a transaction may hold, see store.BulkLimits.
	parts, size int
	// open are the lanes that may be sent, in the order they became so; held are
	// those for which the view has to show more first.
	open, held []*lane
	// gates are the records of quotas and reservations; shut are the lanes that wait for one.
	gates map[string]*gate
	shut  []*lane
	// notes are those about whom there is something to say.
	notes   []*waiter
	flights int
	// most is how many parts a transaction gets now, depth how many may be under way, window how many placements may be decided ahead.
	most, depth, window int
	// landed are those answered by a revision that the view has not reached.
	landed []*flight
	// doubts are those whose answer was lost; settling is true while that is being ended.
	doubts   []*flight
	settling bool
	// line counts how often etcd went back in time.
	line   int
	losers []loser
	// apartUntil is how long the scheduler keeps to its own nodes, see keepApart.
	apartUntil time.Time
	// pausedUntil is set while etcd does not answer.
	pausedUntil time.Time
}

func newPipe(c *store.Client) pipe {
	parts, size := c.BulkLimits()
	parts = min(parts, maxParts)
	return pipe{gates: map[string]*gate{}, parts: parts, size: size, most: parts, depth: depthLimit, window: windowStep}
}

// flight is a transaction under way, and then what came of it.
type flight struct {
	parts  []part
	fences []store.Fence
	// settles is set for one that ends doubts.
	settles []*flight
	// line is the pipe's when it was sent: an answer to one of before may be of either past.
	line int

	done []bool
	rev  int64
	err  error
	took time.Duration
}

// part is one node's placements, or a note.
type part struct {
	lane    *lane
	entries []*entry
	alloc   int64
	// node is the revision of the node's record that the entries were decided from.
	node  int64
	gates []passage
	note  *note
}

// enough reports whether no more needs to be decided: a transaction is full and may
// be sent, or as much was decided ahead as the window allows.
func (p *pipe) enough(queued int) bool {
	if p.flights < p.depth { // what is queued for nodes with something under way does not fill a transaction
		return len(p.open) >= p.most || queued >= max(p.window, windowStep)
	}
	return queued >= p.window
}

// adapt lets more be decided ahead and be under way after a transaction without a
// loss, and less after one that lost much: whoever shares the nodes with other
// schedulers has to know the newest of them, and what waits for etcd is old.
func (p *pipe) adapt(lost, of int) {
	switch {
	case lost == 0 && p.most < p.parts:
		p.most = min(2*p.most, p.parts)
	case lost == 0:
		p.depth = min(p.depth+1, depthLimit)
		p.window = min(p.window+windowStep, windowLimit)
	case lost*muchLost <= of:
	case p.depth > 1:
		p.depth /= 2
		p.window /= 2
	default:
		p.window = 0 // decide when it is sent, not before
		p.most = max(p.most/2, leastParts)
	}
}

// enqueue lists a lane among those to be sent, unless it waits for something.
func (c *Controller) enqueue(l *lane) {
	if l.listed || l.busy || len(l.queued) == 0 {
		return
	}
	l.listed = true
	if l.since > c.state.snap.Rev {
		c.held = append(c.held, l)
	} else {
		c.open = append(c.open, l)
	}
}

// send sends what is queued, as far as not too much is under way. False when that was nothing.
func (c *Controller) send(ctx context.Context, now time.Time) (sent bool) {
	for c.flights < c.depth {
		f := c.load(now)
		if len(f.parts) == 0 {
			return sent
		}
		sent = true
		c.launch(func() { c.commit(ctx, f) })
	}
	return sent
}

// launch runs the sending of a transaction; it ends with an answer.
func (c *Controller) launch(send func()) {
	c.flights++
	c.sending.Go(send)
}

// load takes a transaction's worth of what is to be sent.
func (c *Controller) load(now time.Time) *flight {
	f := &flight{line: c.line}
	fences := map[string]bool{}
	covered := func(fence store.Fence) bool {
		if fences[fence.Key()] {
			return true
		}
		if len(f.fences)+1 >= c.parts {
			return false
		}
		fences[fence.Key()] = true
		f.fences = append(f.fences, fence)
		return true
	}
	entries, bytes := 0, 0
	lanes := c.most - min(len(c.notes), c.most/noteShare)
	for range c.open { // a lane whose fence found no room comes in again behind
		if len(f.parts) >= lanes || entries >= maxEntries || bytes >= store.FullBytes {
			break
		}
		l := c.open[0]
		c.open = c.open[1:]
		l.listed = false
		if p := c.loadLane(l, bytes, covered); len(p.entries) > 0 {
			entries += len(p.entries)
			for _, e := range p.entries {
				bytes += e.bytes()
			}
			f.parts = append(f.parts, p)
		}
	}
	for len(f.parts) < c.most && bytes < store.FullBytes {
		n := c.nextNote(now, covered)
		if n == nil {
			break
		}
		bytes += n.bytes()
		f.parts = append(f.parts, part{note: n})
	}
	return f
}

// loadLane takes what one part holds of a lane's queue, for a transaction that has so
// many bytes already.
func (c *Controller) loadLane(l *lane, bytes int, covered func(store.Fence) bool) part {
	p := part{lane: l, alloc: c.state.allocRev(l), node: c.state.nodeRev(l.node)}
	size := 2
	for len(l.queued) > 0 {
		e := l.queued[0]
		if e.phase == queued {
			touches, ok := c.state.keeps(e)
			if !ok { // somebody else spent it first
				l.queued = l.queued[1:]
				c.state.unplan(e)
				continue
			}
			size += e.size() + len(touches)
			if size > c.size || bytes >= store.FullBytes || !covered(e.fence) {
				break
			}
			if !c.passThrough(&p, touches) {
				c.shut = append(c.shut, l)
				l.listed = true
				break
			}
			bytes += e.bytes()
			e.phase = sent
			c.state.queued--
			p.entries = append(p.entries, e)
		}
		l.queued = l.queued[1:]
	}
	l.busy = len(p.entries) > 0
	if !l.busy {
		c.enqueue(l)
	}
	return p
}

// commit performs a transaction and tells what came of it.
func (c *Controller) commit(ctx context.Context, f *flight) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	b := store.Bulk{Fences: f.fences, Parts: make([]store.Part, len(f.parts))}
	for i := range f.parts {
		b.Parts[i] = f.parts[i].build()
	}
	began := time.Now()
	f.done, f.rev, f.err = c.store.CommitBulk(ctx, b)
	f.took = time.Since(began)
	c.answers <- f
}

// build makes the comparisons and writes of a part.
func (p *part) build() store.Part {
	if p.note != nil {
		return p.note.part()
	}
	out := store.Part{Writes: []store.Write{touch(p.lane.node, p.alloc)}}
	for _, g := range p.gates {
		out.Writes = append(out.Writes, touchBudget(g.gate.key, g.rev))
	}
	if len(p.entries) > 0 { // it is there, and as large as it was
		out.Guards = append(out.Guards, store.Unchanged(store.NodeKey(p.lane.node), p.node))
	}
	for _, e := range p.entries {
		e.build(&out)
	}
	return out
}

// touch compares and renews a node's alloc key.
func touch(n fleet.NodeID, rev int64) store.Write {
	return store.Replace(store.AllocKey(n), fleet.Alloc{Node: n}, rev)
}

// build adds the placement to its node's part.
func (e *entry) build(out *store.Part) {
	i, in, c := e.instance, &e.instance.Intent, &e.choice
	out.Guards = append(out.Guards, store.Unchanged(store.IntentKey(in.ID), in.ModRev))
	if e.plan.Static { // its data would lie on a node that is gone, and it would wait for that
		out.Guards = append(out.Guards, store.Exists(store.NodeSessionKey(c.Node)))
	}
	if i.Moving() { // an old copy that is back after all bars the move
		out.Guards = append(out.Guards, store.Missing(store.NodeSessionKey(i.Placement.Node)),
			store.Unchanged(store.StatusKey(in.ID), i.Status.ModRev))
		if in.LeavesNode != 0 { // so does a node that was back and left again
			out.Guards = append(out.Guards, store.Unchanged(store.NodeKey(i.Placement.Node), in.LeavesNode))
		}
	}
	var rev int64
	if old := i.Placement; old != nil {
		if old.Node == c.Node {
			rev = old.ModRev
		} else {
			out.Writes = append(out.Writes, store.Remove(store.PlacementKey(old.Node, in.ID), old.ModRev))
		}
	}
	out.Writes = append(out.Writes, store.Replace(store.PlacementKey(c.Node, in.ID), fleet.Placement{
		Instance: in.ID, Name: in.Name, Group: in.Group, Node: c.Node, Generation: in.Generation, Plan: in.Plan,
		DataUUID: e.dataUUID, Resources: e.plan.Resources, Port: c.Port, Ports: c.Ports, Alone: c.Hold.Alone, Values: in.Values,
		Epoch: e.fence.Epoch(), PlacedAt: e.at.UTC(), FromRevision: e.seen, Score: c.Score.Text(),
	}, rev))
	noted := e.noted
	if i.Pending != nil {
		noted = max(noted, i.Pending.ModRev)
	}
	switch {
	case noted == 0 && e.unsure:
		out.Guards = append(out.Guards, store.Missing(store.PendingKey(in.ID)))
	case noted != 0:
		out.Writes = append(out.Writes, store.Remove(store.PendingKey(in.ID), noted))
	}
}
