package place

import (
	"container/heap"

	"github.com/orreryhq/orrery/libs/fleet"
)

// ranked is a node that fits, with what it is compared by.
type ranked struct {
	node  *Node
	score Score
	// free and tie decide between equal scores: the most free memory, then a hash of
	// group and node, so that no order of arrival shows.
	free int
	tie  uint64
}

func rankedOf(n *Node, r *Request, b buckets) ranked {
	return ranked{node: n, score: scoreOf(n, r, b), free: n.Free().MemoryMiB, tie: tieBreak(r.Group, n.ID)}
}

func (a ranked) above(b ranked) bool {
	switch {
	case a.score.Total != b.score.Total:
		return a.score.Total > b.score.Total
	case a.free != b.free:
		return a.free > b.free
	}
	return a.tie > b.tie || a.tie == b.tie && a.node.ID < b.node.ID
}

// tieBreak is FNV-1a of group and node.
func tieBreak(g fleet.GroupName, n fleet.NodeID) uint64 {
	h := uint64(14695981039346656037)
	add := func(c byte) { h = (h ^ uint64(c)) * 1099511628211 }
	for i := range len(g) {
		add(g[i])
	}
	add(0)
	for i := range len(n) {
		add(n[i])
	}
	return h
}

// class ranks the nodes for all requests of one plan: a heap of those that fit,
// best first. A placement changes one node, so the next request costs the
// judgement of one node and not of all.
type class struct {
	nodes []ranked
	// at is each slot's place in nodes, less than 0 for those that do not fit.
	at []int
	// seen is how much of the model's changes it knows.
	seen int
}

const (
	// maxClasses bounds the classes kept; past it all start anew.
	maxClasses = 128
	// maxChanges bounds the changes kept, per node: a class further behind starts anew.
	maxChanges = 4
)

// touch notes that a node must be judged again.
func (m *Model) touch(n *Node) {
	if len(m.classes) == 0 {
		return
	}
	if len(m.changed) > 1024+maxChanges*len(m.slots) {
		m.changed = m.changed[:0]
		clear(m.classes)
		return
	}
	m.changed = append(m.changed, n.slot)
}

// class is the class of a request, abreast of all changes.
func (m *Model) class(r *Request) *class {
	c, ok := m.classes[r.Class]
	if !ok {
		if len(m.classes) >= maxClasses {
			clear(m.classes)
		}
		c = m.newClass(r)
		m.classes[r.Class] = c
	}
	for _, slot := range m.changed[c.seen:] {
		c.judge(m.slots[slot], r)
	}
	c.seen = len(m.changed)
	return c
}

func (m *Model) newClass(r *Request) *class {
	c := &class{seen: len(m.changed)}
	c.grow(len(m.slots))
	for _, n := range m.joined {
		if excludedBy(n, r) == nil {
			c.at[n.slot] = len(c.nodes)
			c.nodes = append(c.nodes, rankedOf(n, r, buckets{}))
		}
	}
	heap.Init(c)
	return c
}

func (c *class) grow(slots int) {
	for len(c.at) < slots {
		c.at = append(c.at, -1)
	}
}

// judge puts a node where it belongs now.
func (c *class) judge(n *Node, r *Request) {
	c.grow(n.slot + 1)
	at, fits := c.at[n.slot], n.joined && excludedBy(n, r) == nil
	switch {
	case fits && at >= 0:
		c.nodes[at] = rankedOf(n, r, buckets{})
		heap.Fix(c, at)
	case fits:
		heap.Push(c, rankedOf(n, r, buckets{}))
	case at >= 0:
		heap.Remove(c, at)
	}
}

func (c *class) best() (ranked, bool) {
	if len(c.nodes) == 0 {
		return ranked{}, false
	}
	return c.nodes[0], true
}

// Len, Less, Swap, Push and Pop make it a heap.
func (c *class) Len() int           { return len(c.nodes) }
func (c *class) Less(i, j int) bool { return c.nodes[i].above(c.nodes[j]) }

func (c *class) Swap(i, j int) {
	c.nodes[i], c.nodes[j] = c.nodes[j], c.nodes[i]
	c.at[c.nodes[i].node.slot], c.at[c.nodes[j].node.slot] = i, j
}

func (c *class) Push(x any) {
	r := x.(ranked)
	c.at[r.node.slot] = len(c.nodes)
	c.nodes = append(c.nodes, r)
}

func (c *class) Pop() any {
	last := len(c.nodes) - 1
	r := c.nodes[last]
	c.nodes = c.nodes[:last]
	c.at[r.node.slot] = -1
	return r
}
