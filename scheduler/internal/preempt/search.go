package preempt

import (
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// search looks for the cheapest set on one node.
type search struct {
	node fleet.NodeID
	// candidates are in order of cost.
	candidates []Instance
	lacking    fleet.Resources
	fits       Fits
	// left is how many steps may still be made, shared by all nodes.
	left *int
	// fewest is a number of victims below which no set can be enough; more than there
	// are candidates when none can. At least 1.
	fewest int
	// most is the largest of each part among the first n candidates.
	most []fleet.Resources
	// picked are the victims of the set in the making, the one that costs most first.
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

// enough reports whether n of the first m candidates could make up for what is lacking.
func (s *search) enough(lacking fleet.Resources, n, m int) bool {
	most := s.most[m]
	return lacking.Fits(fleet.Resources{MemoryMiB: n * most.MemoryMiB, CPU: n * most.CPU, DiskMiB: n * most.DiskMiB})
}

// cheapest is the cheapest set of at most limit victims, the one that costs most
// first; nil when there is none.
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

// pick adds size of the first m candidates to the set. It tries sets in order of
// cost, so the first that is enough is the cheapest: its dearest member is the one
// that is chosen last among those that could be.
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

// minimal is a set without a superfluous victim, found without searching: all
// candidates, less each that is not needed, the one that costs most first.
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
