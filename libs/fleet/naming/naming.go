// Package naming relates the instances of a static group to the names that the group gives them.
package naming

import (
	"cmp"
	"iter"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Fixed returns the names that a group gives its instances, in order. Without any, the instances
// are named GROUP-N.
func Fixed(s *fleet.GroupSpec) []string {
	if !s.Static.Enabled {
		return nil
	}
	return s.Static.InstanceNames
}

// Place returns which of a group's fixed names an instance takes, from 1: the name that it has,
// or the N-th if it was created as GROUP-N before the group had names. It returns 0 for an instance
// that takes none.
func Place(g *fleet.Group, name string) int {
	names := Fixed(&g.Spec)
	if n := slices.Index(names, name); n >= 0 {
		return n + 1
	}
	if of, n, ok := fleet.ParseInstanceName(name); ok && of == g.Name && n <= len(names) {
		return n
	}
	return 0
}

// Unlisted reports whether a group has fixed names and an instance takes none of them: its name was
// removed. Such an instance keeps its data and is not started.
func Unlisted(g *fleet.Group, name string) bool {
	return len(Fixed(&g.Spec)) > 0 && Place(g, name) == 0
}

// Rank returns the position of an instance among those of its group: its place, or its ordinal if it
// takes none.
func Rank(g *fleet.Group, i *fleet.Intent) int { return cmp.Or(Place(g, i.Name), i.Ordinal) }

// HeldPlaces returns the places that instances take.
func HeldPlaces(g *fleet.Group, instances iter.Seq[*fleet.Instance]) map[int]bool {
	out := map[int]bool{}
	for i := range instances {
		if n := Place(g, i.Intent.Name); n > 0 {
			out[n] = true
		}
	}
	return out
}
