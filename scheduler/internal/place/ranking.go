package place

import (
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// ranked is a fitting node with the values by which it is compared.
type ranked struct {
	node *Node
	// total is its score without the spread part, which is the same for all nodes of a
	// value.
	total int64
	// free and tie break ties between equal scores: the most free memory, then a hash.
	free int
	tie  uint64
}

func (a *ranked) above(b *ranked) bool {
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

// tieBreak orders equal nodes: first the preferred ones, then by an FNV-1a hash of group
// and node.
func tieBreak(g fleet.GroupName, n *Node) uint64 {
	h := uint64(14695981039346656037)
	add := func(c byte) { h = (h ^ uint64(c)) * 1099511628211 }
	for i := range len(g) {
		add(g[i])
	}
	add(0)
	for i := range len(n.ID) {
		add(n.ID[i])
	}
	if h >>= 1; n.preferred {
		h |= 1 << 63
	}
	return h
}

// ranking orders the nodes for all requests of one class. Each value of the spread label
// has a heap of its fitting nodes. Each number of instances has a heap of the best nodes of
// the values with that number. A placement changes one node and the count of its value, so
// the next request judges only one node.
type ranking struct {
	class *class
	// known and at are indexed by slot: what the ranking knows of a node, and its index in
	// the heap of its value.
	known  []known
	at     []int32
	values []value
	// index maps a name to its value; unused are the indexes of values without nodes, for
	// reuse.
	index  map[string]int32
	unused []int32
	// levels groups the values by number of instances, fewest first. topAt maps a slot to
	// its index in a level's heap.
	levels []level
	topAt  []int32
	// alternatives counts the nodes that are not busy and could hold an instance if they
	// were empty.
	alternatives int
	// spare is the memory of a deleted level, for reuse.
	spare heap
}

// known is what a ranking knows of a node.
type known struct {
	// facts is the version of the node's facts that this was derived from.
	facts uint32
	// value is the index of the node's value, -1 while the node has not joined.
	value int32
	// own is how many of the group's instances the value counts for this node.
	own int32
	// allowed means that the standing filters admit the node. couldHold means that it could
	// also hold an instance if it were empty.
	allowed, couldHold bool
	// alternative means that couldHold is true and the node is not busy.
	alternative bool
	// lasting is the part of the score that depends on the node's facts.
	lasting int64
	tie     uint64
}

// noValue is the index of the value for nodes without the spread label, or for all nodes
// when the plan has no spread label.
const noValue = 0

func newRanking(c *class, m *Model) *ranking {
	k := &ranking{class: c, values: []value{{unlabelled: true}}, index: map[string]int32{}}
	k.grow(len(m.slots))
	for _, n := range m.joined {
		k.judge(n)
	}
	return k
}

// grow extends the arrays to a number of slots.
func (k *ranking) grow(slots int) {
	if slots <= len(k.known) {
		return
	}
	have := len(k.known)
	more := slots - have
	k.known, k.at, k.topAt = slices.Grow(k.known, more)[:slots], slices.Grow(k.at, more)[:slots], slices.Grow(k.topAt, more)[:slots]
	for i := have; i < slots; i++ {
		k.known[i], k.at[i], k.topAt[i] = known{value: -1}, -1, -1
	}
}

// judge evaluates a node and moves it to its new position.
func (k *ranking) judge(n *Node) {
	k.grow(n.slot + 1)
	was := &k.known[n.slot]
	if was.facts != n.facts {
		k.learn(n, was)
	}
	if was.value < 0 {
		return
	}
	v := &k.values[was.value]
	k.unfile(v)
	if own := int32(n.groups[k.class.Group].instances); own != was.own {
		v.count += int(own - was.own)
		was.own = own
	}
	if was.allowed && firstOf(room[:], n, &k.class.question) == nil && loadFilter.Fits(n, &k.class.question) {
		v.fits.put(k.rank(n, was), k.at)
	} else {
		v.fits.remove(n, k.at)
	}
	k.file(v)
}

func (k *ranking) rank(n *Node, as *known) ranked {
	var s Score
	k.class.changing(n, &s)
	return ranked{node: n, total: s.total() + as.lasting, free: n.usable.MemoryMiB - n.used.MemoryMiB, tie: as.tie}
}

// learn derives a node's entry from its changed facts.
func (k *ranking) learn(n *Node, was *known) {
	if was.value >= 0 {
		k.leave(n, was)
	}
	if was.alternative {
		k.alternatives--
	}
	*was = known{facts: n.facts, value: -1}
	if n.Runtimes == nil { // the node has left
		return
	}
	q := &k.class.question
	var s Score
	q.lasting(n, &s)
	was.value, was.lasting, was.tie = k.valueFor(n), s.total(), tieBreak(q.Group, n)
	was.allowed = firstOf(standing[:], n, q) == nil
	was.couldHold = was.allowed && q.Plan.Resources.Fits(n.usable)
	if was.alternative = was.couldHold && n.busyAbove == 0; was.alternative {
		k.alternatives++
	}
	v := &k.values[was.value]
	k.unfile(v)
	v.join(was)
	k.file(v)
}

// leave removes a node from its value.
func (k *ranking) leave(n *Node, was *known) {
	v := &k.values[was.value]
	k.unfile(v)
	v.fits.remove(n, k.at)
	v.part(was)
	k.file(v)
	if v.nodes == 0 && was.value != noValue {
		delete(k.index, v.name)
		k.unused = append(k.unused, was.value)
	}
}

// best returns the best node that fits, or nil when none does.
func (k *ranking) best() *Node {
	var best ranked
	better := func(h heap, spread int64) {
		if len(h) == 0 {
			return
		}
		top := h[0]
		if top.total += spread; best.node == nil || top.above(&best) {
			best = top
		}
	}
	if k.admits(noValue) {
		better(k.values[noValue].fits, k.spreadPart(noValue))
	}
	for i := range k.levels {
		l := &k.levels[i]
		if !k.admitsCount(l.count) {
			break
		}
		better(l.tops, k.spreadOf(l.count))
	}
	return best.node
}
