package render

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

const (
	// maxSimilarity is the similarity of equal elements.
	maxSimilarity = 1000
	// maxAlignCost limits the comparisons of sequence elements per file, in values. Beyond it
	// only equal elements at both ends of a sequence are paired.
	maxAlignCost = 2 << 20
)

// align pairs each element of a sequence with the element of an older sequence that it was; -1
// means that it is new. It pairs elements across insertions, removals and moves: equal ones and
// similar mappings anywhere, then changed elements between the same neighbours. left is the
// remaining budget of comparisons.
func align(now, was []*yaml.Node, left *int) []int {
	a := alignment{pairs: slices.Repeat([]int{-1}, len(now)), taken: make([]bool, len(was))}
	from, n, m := 0, len(now), len(was)
	for ; from < min(n, m) && looselyEqual(now[from], was[from]); from++ {
		a.pair(from, from)
	}
	for ; n > from && m > from && looselyEqual(now[n-1], was[m-1]); n, m = n-1, m-1 {
		a.pair(n-1, m-1)
	}
	if *left -= alignCost(now[from:n], was[from:m]); *left >= 0 {
		a.pairSimilar(now[:n], was[:m], from)
		a.pairBetweenNeighbours()
	}
	return a.pairs
}

// alignment is the result of align so far. taken marks the elements of the older sequence that
// are paired.
type alignment struct {
	pairs []int
	taken []bool
}

func (a *alignment) pair(now, was int) { a.pairs[now], a.taken[was] = was, true }

// alignCost is the number of values that are compared.
func alignCost(now, was []*yaml.Node) int {
	n, m := 0, 0
	for _, one := range now {
		n += values(one)
	}
	for _, one := range was {
		m += values(one)
	}
	return n*len(was) + m*len(now)
}

// values returns the number of nodes in a tree.
func values(n *yaml.Node) int {
	all := 1
	for _, c := range n.Content {
		all += values(c)
	}
	return all
}

// pairSimilar pairs the elements after the first from ones, the most similar first.
func (a *alignment) pairSimilar(now, was []*yaml.Node, from int) {
	type candidate struct{ now, was, similarity int }
	var all []candidate
	for i := from; i < len(now); i++ {
		for j := from; j < len(was); j++ {
			if s := similarity(now[i], was[j]); s > 0 {
				all = append(all, candidate{i, j, s})
			}
		}
	}
	slices.SortStableFunc(all, func(x, y candidate) int { return y.similarity - x.similarity })
	for _, c := range all {
		if a.pairs[c.now] < 0 && !a.taken[c.was] {
			a.pair(c.now, c.was)
		}
	}
}

// pairBetweenNeighbours pairs unpaired elements in order, if the older sequence has the same
// number of unpaired ones between the same neighbours.
func (a *alignment) pairBetweenNeighbours() {
	before := -1 // the older element of the left neighbour
	for begin := 0; begin < len(a.pairs); begin++ {
		end, after := begin, len(a.taken)
		for end < len(a.pairs) && a.pairs[end] < 0 {
			end++
		}
		if end < len(a.pairs) {
			after = a.pairs[end]
		}
		if after-before-1 == end-begin && !slices.Contains(a.taken[before+1:after], true) {
			for i := begin; i < end; i++ {
				a.pair(i, before+1+i-begin)
			}
		}
		begin, before = end, after
	}
}

// similarity returns how much two elements have in common. For mappings it is the share of
// equal values.
func similarity(a, b *yaml.Node) int {
	if looselyEqual(a, b) {
		return maxSimilarity
	}
	if a.Kind != yaml.MappingNode || b.Kind != yaml.MappingNode {
		return 0
	}
	at, equal := byKey(b), 0
	for i := 0; i+1 < len(a.Content); i += 2 {
		if v, ok := at[keyText(a.Content[i])]; ok && looselyEqual(a.Content[i+1], v) {
			equal++
		}
	}
	return (maxSimilarity - 1) * 2 * equal / max(len(a.Content), len(b.Content), 2)
}

// looselyEqual is sameValue, but also accepts a string and a number with the same text.
func looselyEqual(a, b *yaml.Node) bool {
	if a.Kind != b.Kind || len(a.Content) != len(b.Content) {
		return false
	}
	if a.Kind == yaml.MappingNode {
		at := byKey(b)
		for i := 0; i+1 < len(a.Content); i += 2 {
			if v, ok := at[keyText(a.Content[i])]; !ok || !looselyEqual(a.Content[i+1], v) {
				return false
			}
		}
		return true
	}
	for i := range a.Content {
		if !looselyEqual(a.Content[i], b.Content[i]) {
			return false
		}
	}
	return a.Kind == yaml.SequenceNode || sameValue(a, b) || sameText(a, b)
}

// byKey returns a mapping's values by the text of their keys.
func byKey(m *yaml.Node) map[string]*yaml.Node {
	at := make(map[string]*yaml.Node, len(m.Content)/2)
	for i := 0; i+1 < len(m.Content); i += 2 {
		at[keyText(m.Content[i])] = m.Content[i+1]
	}
	return at
}
