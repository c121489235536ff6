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
// means that it is new. It pairs elements across insertions, removals and moves: equal ones
// anywhere, mappings by similarity, and elements between the same pairs by position. left is
// the remaining budget of comparisons.
func align(now, was []*yaml.Node, left *int) []int {
	pairs := make([]int, len(now))
	for i := range pairs {
		pairs[i] = -1
	}
	from, n, m := 0, len(now), len(was)
	for from < min(n, m) && looselyEqual(now[from], was[from]) {
		pairs[from] = from
		from++
	}
	for n > from && m > from && looselyEqual(now[n-1], was[m-1]) {
		n, m = n-1, m-1
		pairs[n] = m
	}
	a := alignment{now: now[from:n], was: was[from:m], from: from, pairs: pairs[from:n]}
	if *left -= a.cost(); *left >= 0 {
		a.pairSimilar()
		inOrder := slices.Clone(a.pairs)
		a.pairMoved()
		a.pairByPosition(inOrder)
	}
	return pairs
}

// alignment is the differing part of two sequences. pairs belongs to now; its indexes are those
// of the whole older sequence.
type alignment struct {
	now, was []*yaml.Node
	from     int
	pairs    []int
}

func (a alignment) cost() int {
	n, m := 0, 0
	for _, one := range a.now {
		n += values(one)
	}
	for _, one := range a.was {
		m += values(one)
	}
	return n*len(a.was) + m*len(a.now)
}

// values returns the number of nodes in a tree.
func values(n *yaml.Node) int {
	all := 1
	for _, c := range n.Content {
		all += values(c)
	}
	return all
}

// pairSimilar pairs elements in order, with the maximum sum of similarities (dynamic programming,
// as for the longest common subsequence).
func (a alignment) pairSimilar() {
	best := make([][]int, len(a.now)+1)
	score := make([][]int, len(a.now))
	for i := range best {
		best[i] = make([]int, len(a.was)+1)
	}
	for i := len(a.now) - 1; i >= 0; i-- {
		score[i] = make([]int, len(a.was))
		for j := len(a.was) - 1; j >= 0; j-- {
			score[i][j] = similarity(a.now[i], a.was[j])
			best[i][j] = max(best[i+1][j], best[i][j+1], best[i+1][j+1]+score[i][j])
		}
	}
	for i, j := 0, 0; i < len(a.now) && j < len(a.was); {
		switch {
		case score[i][j] > 0 && best[i][j] == best[i+1][j+1]+score[i][j]:
			a.pairs[i] = a.from + j
			i, j = i+1, j+1
		case best[i][j] == best[i+1][j]:
			i++
		default:
			j++
		}
	}
}

// pairByPosition pairs the unpaired elements between two pairs of inOrder, if both sequences have
// the same number of them.
func (a alignment) pairByPosition(inOrder []int) {
	i, j := 0, 0
	for end := 0; end <= len(a.now); end++ {
		to := len(a.was)
		if end < len(a.now) {
			if inOrder[end] < 0 {
				continue
			}
			to = inOrder[end] - a.from
		}
		var now, was []int
		for ; i < end; i++ {
			if a.pairs[i] < 0 {
				now = append(now, i)
			}
		}
		for ; j < to; j++ {
			if !slices.Contains(a.pairs, a.from+j) {
				was = append(was, a.from+j)
			}
		}
		if len(now) == len(was) {
			for k := range now {
				a.pairs[now[k]] = was[k]
			}
		}
		i, j = end+1, to+1
	}
}

// pairMoved pairs equal elements at any position.
func (a alignment) pairMoved() {
	taken := make([]bool, len(a.was))
	for _, pair := range a.pairs {
		if pair >= 0 {
			taken[pair-a.from] = true
		}
	}
	for i, now := range a.now {
		if a.pairs[i] >= 0 {
			continue
		}
		for j, was := range a.was {
			if !taken[j] && looselyEqual(now, was) {
				a.pairs[i], taken[j] = a.from+j, true
				break
			}
		}
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
