package preempt

import (
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// search looks for the cheapest set on one node.
type search struct {
	node fleet.NodeID
	// candidates are sorted by cost, cheapest first.
	candidates []Instance
	lacking    fleet.Resources
	fits       Fits
	// left is the number of remaining steps, shared by all nodes.
	left *int
	// fewest is a lower bound of the number of victims, at least 1. It exceeds the number
	// of candidates when no set is enough.
	fewest int
	// most[n] is the maximum of each resource among the first n candidates.
	most []fleet.Resources
	// picked are the victims chosen so far, most expensive first.
	picked []Instance
}

func newSearch(n Node, candidates []Instance, fits Fits, left *int) *search {
	s := &search{node: n.ID, candidates: candidates, lacking: n.Lacking, fits: fits, left: left}
	s.most = make([]fleet.Resources, len(candidates)+1)
	for n, c := range candidates {
		s.most[n+1] = larger(s.most[n], c.Resources)
	}
	for s.fewest = 1; s.fewest <= len(candidates) && !s.enough(s.lacking, s.fewest, len(candidates)); {
		s.fewest++
	}
	return s
}

// enough reports whether n of the first m candidates could free what is lacking.
func (s *search) enough(lacking fleet.Resources, n, m int) bool {
	most := s.most[m]
	return lacking.Fits(fleet.Resources{MemoryMiB: n * most.MemoryMiB, CPU: n * most.CPU, DiskMiB: n * most.DiskMiB})
}

// cheapest returns the cheapest set of at most limit victims, most expensive first, or nil
// when none exists.
func (s *search) cheapest(limit int) []Instance {
	for size := s.fewest; size <= limit; size++ {
		if s.pick(size, len(s.candidates), s.lacking) {
			return slices.Clone(s.picked)
		}
		if *s.left <= 0 {
			return s.minimal(limit)
		}
	}
	return nil
}

// pick adds size of the first m candidates to the set. It tries the cheapest possible most
// expensive victim first, so the first set that fits is the cheapest.
func (s *search) pick(size, m int, lacking fleet.Resources) bool {
	*s.left--
	if size == 0 {
		return s.fits(s.node, ids(s.picked))
	}
	for dearest := size - 1; dearest < m; dearest++ {
		if *s.left <= 0 {
			return false
		}
		c := s.candidates[dearest]
		rest := lacking.Sub(c.Resources)
		if !s.enough(rest, size-1, dearest) {
			continue
		}
		s.picked = append(s.picked, c)
		if s.pick(size-1, dearest, rest) {
			return true
		}
		s.picked = s.picked[:len(s.picked)-1]
	}
	return false
}

// minimal returns a set without a superfluous victim. It starts with all candidates and
// drops each one that is not needed, most expensive first.
func (s *search) minimal(limit int) []Instance {
	set := slices.Clone(s.candidates)
	slices.Reverse(set)
	for n := 0; n < len(set); {
		without := slices.Delete(slices.Clone(set), n, n+1)
		if s.fits(s.node, ids(without)) {
			set = without
		} else {
			n++
		}
	}
	if len(set) == 0 || len(set) > limit {
		return nil
	}
	return set
}

func larger(a, b fleet.Resources) fleet.Resources {
	return fleet.Resources{MemoryMiB: max(a.MemoryMiB, b.MemoryMiB), CPU: max(a.CPU, b.CPU), DiskMiB: max(a.DiskMiB, b.DiskMiB)}
}
