package place

import (
	"container/heap"

	"github.com/orreryhq/orrery/libs/fleet"
)

// ranked is a node that fits, with what it is compared by.
type ranked struct {
	node  *Node
	total float64
	// free and tie decide between equal scores: the most free memory, then a hash.
	free int
	tie  uint64
}

func rankedOf(n *Node, r *Request, sp spread) ranked {
	return ranked{node: n, total: scoreOf(n, r, sp).Total, free: n.Free().MemoryMiB, tie: tieBreak(r.Group, n.ID)}
}

func (a ranked) above(b ranked) bool {
	switch {
	case a.total != b.total:
		return a.total > b.total
	case a.free != b.free:
		return a.free > b.free
	case a.tie != b.tie:
		return a.tie > b.tie
	}
	return a.node.ID < b.node.ID
}

// tieBreak orders equal nodes differently for each group, but always the same way: FNV-1a.
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

// classKey is what requests share that are judged alike. A plan never changes, so
// its address stands for its content, and the key keeps it from being reused.
type classKey struct {
	plan  *fleet.Plan
	group fleet.GroupName
}

// class ranks the nodes for all requests of one plan: a heap of those that fit,
// best first. A placement changes one node, so the next request costs the
// judgement of one node and not of all.
type class struct {
	nodes []ranked
	// at is each slot's place in nodes, -1 for those that do not fit.
	at []int
	// seen is how many of the model's changes it knows.
	seen int
}

const (
	// maxClasses bounds the classes kept; past it all start anew.
	maxClasses = 64
	// maxChanges bounds the changes kept, beside a few per node; past it all classes start anew.
	maxChanges, maxChangesPerNode = 1024, 4
)

// touch notes that a node must be judged again.
func (m *Model) touch(n *Node) {
	if len(m.classes) == 0 {
		return
	}
	if len(m.changed) >= maxChanges+maxChangesPerNode*len(m.slots) {
		m.forget()
		return
	}
	m.changed = append(m.changed, n.slot)
}

func (m *Model) forget() {
	clear(m.classes)
	m.changed = m.changed[:0]
}

// class is the class of a request, abreast of all changes.
func (m *Model) class(r *Request) *class {
	key := classKey{r.Plan, r.Group}
	c, ok := m.classes[key]
	if !ok {
		if len(m.classes) >= maxClasses {
			m.forget()
		}
		c = m.newClass(r)
		m.classes[key] = c
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
			c.nodes = append(c.nodes, rankedOf(n, r, spread{}))
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
	at := c.at[n.slot]
	fits := excludedBy(n, r) == nil
	switch {
	case fits && at >= 0:
		c.nodes[at] = rankedOf(n, r, spread{})
		heap.Fix(c, at)
	case fits:
		heap.Push(c, rankedOf(n, r, spread{}))
	case at >= 0:
		heap.Remove(c, at)
	}
}

// best is the best node, nil when none fits.
func (c *class) best() *Node {
	if len(c.nodes) == 0 {
		return nil
	}
	return c.nodes[0].node
}

// Len, Less, Swap, Push and Pop are for package heap.

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
	c.nodes, c.at[r.node.slot] = c.nodes[:last], -1
	return r
}
