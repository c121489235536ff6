package controller

import (
	"context"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/scheduler/internal/pending"
)

const (
	// depthLimit is how many transactions may be in progress at a time.
	depthLimit = 8
	// maxParts bounds the parts of one transaction below etcd's own limit, because a large
	// transaction delays all other clients.
	maxParts = 256
	// leastParts is the smallest size of a transaction under contention with other
	// schedulers.
	leastParts = 16
	// maxEntries bounds the placements of one transaction, to stay well below etcd's
	// request limit.
	maxEntries = 1024
	// windowStep and windowLimit bound how many placements are decided before they can be
	// sent. Placements on the same node then share the write of its alloc key. But a commit
	// by another scheduler on that node invalidates them.
	windowStep, windowLimit = 1024, 32 << 10
	// muchLost defines heavy loss: more than one part in muchLost.
	muchLost = 8
	// commitTimeout limits the time of one transaction.
	commitTimeout = 5 * time.Second
)

// committer holds the queued placements and notes, the transactions in progress, and the
// results.
type committer struct {
	// parts and size are the limits of a transaction, see store.BulkLimits.
	parts, size int
	// sendable are the queues that may be sent, in order of arrival. awaitingView are the
	// queues for which the view must catch up first.
	sendable, awaitingView []*nodeQueue
	// quotaLocks are the records of quotas and reservations; awaitingQuota are the queues
	// that wait for one of them.
	quotaLocks    map[string]*quotaLock
	awaitingQuota []*nodeQueue
	// notes are the instances with a note to write.
	notes      []*pending.Instance
	inProgress int
	// partLimit is the current limit of parts per transaction, depth the limit of concurrent
	// transactions, and window the limit of placements decided ahead.
	partLimit, depth, window int
	// unconfirmed are the answered transactions whose revision the view has not reached.
	unconfirmed []*bulk
	// unknown are the transactions with an unknown outcome; resolving is true while one of
	// them is being resolved.
	unknown   []*bulk
	resolving bool
	// history counts how often etcd went back in time, such as by a restore.
	history int
	retries []retryEntry
	// onlyOwnUntil is how long the scheduler keeps to its own nodes, see keepToOwn.
	onlyOwnUntil time.Time
	// pausedUntil is set after a failed transaction.
	pausedUntil time.Time
}

func newCommitter(c *store.Client) committer {
	parts, size := c.BulkLimits()
	parts = min(parts, maxParts)
	return committer{quotaLocks: map[string]*quotaLock{}, parts: parts, size: size, partLimit: parts, depth: depthLimit, window: windowStep}
}

// bulk is a transaction in progress, and later its result.
type bulk struct {
	parts  []part
	fences []store.Fence
	// resolves holds the transactions whose outcome this one resolves.
	resolves []*bulk
	// history is the committer's history when it was sent. After a change, the answer may
	// belong to either history.
	history int

	done []bool
	rev  int64
	err  error
	took time.Duration
}

// part holds one node's placements, or a note.
type part struct {
	queue   *nodeQueue
	entries []*entry
	alloc   int64
	// node is the revision of the node's record that the decisions are based on.
	node   int64
	quotas []quotaUse
	note   *note
}

// enough reports whether to stop deciding: either a full transaction can be sent, or the
// window is full.
func (p *committer) enough(queued int) bool {
	if p.inProgress < p.depth { // entries queued for busy nodes do not fill a transaction
		return len(p.sendable) >= p.partLimit || queued >= max(p.window, windowStep)
	}
	return queued >= p.window
}

// adapt raises the limits after a transaction without losses and lowers them after heavy
// loss. Under contention, decisions must be based on fresh data, and the longer a decision waits for etcd, the older its data gets.
func (p *committer) adapt(lost, of int) {
	switch {
	case lost == 0 && p.partLimit < p.parts:
		p.partLimit = min(2*p.partLimit, p.parts)
	case lost == 0:
		p.depth = min(p.depth+1, depthLimit)
		p.window = min(p.window+windowStep, windowLimit)
	case lost*muchLost <= of:
	case p.depth > 1:
		p.depth /= 2
		p.window /= 2
	default:
		p.window = 0 // decide only right before sending
		p.partLimit = max(p.partLimit/2, leastParts)
	}
}

// enqueue lists a queue for sending if it has entries and is not busy.
func (c *Controller) enqueue(l *nodeQueue) {
	if l.listed || l.busy || len(l.queued) == 0 {
		return
	}
	l.listed = true
	if l.since > c.state.snap.Rev {
		c.awaitingView = append(c.awaitingView, l)
	} else {
		c.sendable = append(c.sendable, l)
	}
}

// send sends queued parts until the depth limit. It returns false when there was nothing to
// send.
func (c *Controller) send(ctx context.Context, now time.Time) (sent bool) {
	for c.inProgress < c.depth {
		f := c.load(now)
		if len(f.parts) == 0 {
			return sent
		}
		sent = true
		c.launch(func() { c.commit(ctx, f) })
	}
	return sent
}

// launch runs send in a goroutine that ends with an answer.
func (c *Controller) launch(send func()) {
	c.inProgress++
	c.sending.Go(send)
}

// load takes up to one transaction of queued parts.
func (c *Controller) load(now time.Time) *bulk {
	f := &bulk{history: c.history}
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
	queues := c.partLimit - min(len(c.notes), c.partLimit/noteShare)
	for range c.sendable { // a queue without room for its fence is queued again at the end
		if len(f.parts) >= queues || entries >= maxEntries || bytes >= store.FullBytes {
			break
		}
		l := c.sendable[0]
		c.sendable = c.sendable[1:]
		l.listed = false
		if p := c.loadQueue(l, bytes, covered); len(p.entries) > 0 {
			entries += len(p.entries)
			for _, e := range p.entries {
				bytes += e.bytes()
			}
			f.parts = append(f.parts, p)
		}
	}
	for len(f.parts) < c.partLimit && bytes < store.FullBytes {
		n := c.nextNote(now, covered)
		if n == nil {
			break
		}
		bytes += n.bytes()
		f.parts = append(f.parts, part{note: n})
	}
	return f
}

// loadQueue takes one part from a node's queue. bytes is the size that the transaction
// already has.
func (c *Controller) loadQueue(l *nodeQueue, bytes int, covered func(store.Fence) bool) part {
	p := part{queue: l, alloc: c.state.allocRev(l), node: c.state.nodeRev(l.node)}
	size := 2
	for len(l.queued) > 0 {
		e := l.queued[0]
		if e.phase == queued {
			touches, ok := c.state.withinBudget(e)
			if !ok { // another placement used up the budget
				l.queued = l.queued[1:]
				c.state.cancel(e)
				continue
			}
			size += e.size() + len(touches)
			if size > c.size || bytes >= store.FullBytes || !covered(e.fence) {
				break
			}
			if !c.lockQuotas(&p, touches) {
				c.awaitingQuota = append(c.awaitingQuota, l)
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

// commit performs a transaction and reports its result.
func (c *Controller) commit(ctx context.Context, f *bulk) {
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

// build returns the comparisons and writes of a part.
func (p *part) build() store.Part {
	if p.note != nil {
		return p.note.part()
	}
	out := store.Part{Writes: []store.Write{touch(p.queue.node, p.alloc)}}
	for _, g := range p.quotas {
		out.Writes = append(out.Writes, touchBudget(g.lock.key, g.rev))
	}
	if len(p.entries) > 0 { // the node exists with the same capacity
		out.Guards = append(out.Guards, store.Unchanged(keys.Node(p.queue.node), p.node))
	}
	for _, e := range p.entries {
		e.build(&out)
	}
	return out
}

// touch returns a write that compares and updates a node's alloc key.
func touch(n fleet.NodeID, rev int64) store.Write {
	return store.Replace(keys.Alloc(n), fleet.Alloc{Node: n}, rev)
}

// build adds the placement to its node's part.
func (e *entry) build(out *store.Part) {
	i, in, c := e.instance, &e.instance.Intent, &e.choice
	out.Guards = append(out.Guards, store.Unchanged(keys.Intent(in.ID), in.ModRev))
	if e.plan.Static { // else the instance would be tied to a node that is gone
		out.Guards = append(out.Guards, store.Exists(keys.NodeSession(c.Node)))
	}
	if i.Moving() { // the old copy must not have come back
		out.Guards = append(out.Guards, store.Missing(keys.NodeSession(i.Placement.Node)),
			store.Unchanged(keys.Status(in.ID), i.Status.ModRev))
		if in.LeavesNode != 0 { // nor may its node have rejoined and left again
			out.Guards = append(out.Guards, store.Unchanged(keys.Node(i.Placement.Node), in.LeavesNode))
		}
	}
	var rev int64
	if old := i.Placement; old != nil {
		if old.Node == c.Node {
			rev = old.ModRev
		} else {
			out.Writes = append(out.Writes, store.Remove(keys.Placement(old.Node, in.ID), old.ModRev))
		}
	}
	out.Writes = append(out.Writes, store.Replace(keys.Placement(c.Node, in.ID), fleet.Placement{
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
		out.Guards = append(out.Guards, store.Missing(keys.Pending(in.ID)))
	case noted != 0:
		out.Writes = append(out.Writes, store.Remove(keys.Pending(in.ID), noted))
	}
}
