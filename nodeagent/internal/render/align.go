package render

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

const (
	// alikeAll is the score of two elements that say the same.
	alikeAll = 1000
	// maxAlign bounds the comparing of all sequences of a file, in values looked at. Of
	// those beyond it only what is the same at both ends is told.
	maxAlign = 2 << 20
)

// align tells of each element of a sequence which one of another it was, or is; -1 for one
// that is new. What was inserted, removed or moved leaves the others paired: those that
// say the same, wherever, mappings that have most in common, and what stands alone between
// two pairs.
// left is what may still be compared.
func align(now, was []*yaml.Node, left *int) []int {
	pairs := make([]int, len(now))
	for i := range pairs {
		pairs[i] = -1
	}
	from, n, m := 0, len(now), len(was)
	for from < min(n, m) && same(now[from], was[from]) {
		pairs[from] = from
		from++
	}
	for n > from && m > from && same(now[n-1], was[m-1]) {
		n, m = n-1, m-1
		pairs[n] = m
	}
	a := alignment{now: now[from:n], was: was[from:m], from: from, pairs: pairs[from:n]}
	if *left -= a.cost(); *left >= 0 {
		a.byLikeness()
		inOrder := slices.Clone(a.pairs)
		a.moved()
		a.byPlace(inOrder)
	}
	return pairs
}

// alignment is the part of two sequences that differs; pairs are of now, and count from
// the beginning of the whole.
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

// values counts a node and all in it.
func values(n *yaml.Node) int {
	all := 1
	for _, c := range n.Content {
		all += values(c)
	}
	return all
}

// byLikeness pairs in order so that the pairs have most in common altogether.
func (a alignment) byLikeness() {
	best := make([][]int, len(a.now)+1)
	score := make([][]int, len(a.now))
	for i := range best {
		best[i] = make([]int, len(a.was)+1)
	}
	for i := len(a.now) - 1; i >= 0; i-- {
		score[i] = make([]int, len(a.was))
		for j := len(a.was) - 1; j >= 0; j-- {
			score[i][j] = likeness(a.now[i], a.was[j])
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

// byPlace pairs what stands between two pairs of those in order where as many did.
func (a alignment) byPlace(inOrder []int) {
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

// moved pairs what says the same elsewhere.
func (a alignment) moved() {
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
			if !taken[j] && same(now, was) {
				a.pairs[i], taken[j] = a.from+j, true
				break
			}
		}
	}
}

// likeness is how much two elements have in common: of mappings the share of their keys.
func likeness(a, b *yaml.Node) int {
	if same(a, b) {
		return alikeAll
	}
	if a.Kind != yaml.MappingNode || b.Kind != yaml.MappingNode {
		return 0
	}
	at, equal := byKey(b), 0
	for i := 0; i+1 < len(a.Content); i += 2 {
		if v, ok := at[keyText(a.Content[i])]; ok && same(a.Content[i+1], v) {
			equal++
		}
	}
	return (alikeAll - 1) * 2 * equal / max(len(a.Content), len(b.Content), 2)
}

// same reports whether two nodes say the same, as means does, though words and numbers may
// be taken for each other.
func same(a, b *yaml.Node) bool {
	if a.Kind != b.Kind || len(a.Content) != len(b.Content) {
		return false
	}
	if a.Kind == yaml.MappingNode {
		at := byKey(b)
		for i := 0; i+1 < len(a.Content); i += 2 {
			if v, ok := at[keyText(a.Content[i])]; !ok || !same(a.Content[i+1], v) {
				return false
			}
		}
		return true
	}
	for i := range a.Content {
		if !same(a.Content[i], b.Content[i]) {
			return false
		}
	}
	return a.Kind == yaml.SequenceNode || means(a, b) || readsLike(a, b)
}

// byKey are a mapping's values by their keys' texts.
func byKey(m *yaml.Node) map[string]*yaml.Node {
	at := make(map[string]*yaml.Node, len(m.Content)/2)
	for i := 0; i+1 < len(m.Content); i += 2 {
		at[keyText(m.Content[i])] = m.Content[i+1]
	}
	return at
}
