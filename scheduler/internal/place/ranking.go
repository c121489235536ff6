package place

import (
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// ranked is a node that fits, with what it is compared by.
type ranked struct {
	node *Node
	// total is its score without the part for the spread, which all nodes of a value share.
	total int64
	// free and tie decide between equal scores: the most free memory, then a hash.
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

// equals reports whether only the tie-break decides between two nodes.
func (a *ranked) equals(b *ranked) bool { return a.total == b.total && a.free == b.free }

// tieBreak orders equal nodes: those that the model prefers first, then by a hash that
// differs from group to group (FNV-1a).
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

// ranking orders the nodes for all requests of one class: for each value of the
// spread label a heap of the nodes that fit, best first, and for the values with the
// same number of instances a heap of their best. A placement changes one node and the
// count of its value, so the next request costs the judgement of one node.
type ranking struct {
	class *class
	// known and at are by slot: what was found of each node, and its place in its value's heap.
	known  []known
	at     []int32
	values []value
	// index finds a value by its name; unused are values that have lost their last node.
	index  map[string]int32
	unused []int32
	// levels are the values by how many instances they have, fewest first; topAt are,
	// by slot, the places in the levels' heaps.
	levels []level
	topAt  []int32
	// alternatives counts the nodes that are an alternative to busy ones.
	alternatives int
	// spare is the memory of a level that is gone.
	spare heap
}

// known is what a ranking found of a node.
type known struct {
	// facts is the version of the node's facts it was found in.
	facts uint32
	// value is the node's value, -1 while the node has not joined.
	value int32
	// own is how many of the group's instances were counted for it.
	own int32
	// allowed is whether the plan and the node's facts go together.
	allowed, couldHold bool
	// alternative is whether it could hold an instance if it were empty, and is not busy.
	alternative bool
	// lasting is the part of the score that depends on its facts.
	lasting int64
	tie     uint64
}

// noValue is the place among the values of the nodes without the spread label, or of
// all when there is no such label.
const noValue = 0

func newRanking(c *class, m *Model) *ranking {
	k := &ranking{class: c, values: []value{{unlabelled: true}}, index: map[string]int32{}}
	k.grow(len(m.slots))
	for _, n := range m.joined {
		k.judge(n)
	}
	return k
}

// grow makes room for what is found of nodes.
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

// judge puts a node where it belongs now.
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

// learn finds a node's facts anew.
func (k *ranking) learn(n *Node, was *known) {
	if was.value >= 0 {
		k.leave(n, was)
	}
	if was.alternative {
		k.alternatives--
	}
	*was = known{facts: n.facts, value: -1}
	if n.Runtimes == nil { // it has left
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

// leave takes back what a node counted for.
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

// best is the best node that fits, nil when there is none.
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
