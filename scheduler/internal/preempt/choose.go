package preempt

import (
	"cmp"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Gap is how much lower the priority of a victim's group must be at least: those
// closer than that count as equals.
const Gap = 10

// Instance is what is known of an instance that may have to make room.
type Instance struct {
	ID        fleet.InstanceID
	Priority  int
	Resources fleet.Resources
	// Placed is the revision of its placement, so that no clock says who is youngest.
	Placed int64
	// Bound is whether it must stay whatever its priority: it is static, has players,
	// or is ending anyway.
	Bound bool
}

// Node is a node with the instances on it.
type Node struct {
	ID        fleet.NodeID
	Instances []Instance
	// Lacking is what is missing on it, each part at least 0: a bound for the search.
	Lacking fleet.Resources
}

// Victims are who makes room on a node, the one that costs most first.
type Victims struct {
	Node      fleet.NodeID
	Instances []Instance
}

// Fits reports whether the instance would fit on a node without some of those on it.
type Fits func(n fleet.NodeID, without []fleet.InstanceID) bool

// steps bounds one search, and so how often Fits is asked about sets of victims.
const steps = 1 << 14

// Choose finds the cheapest victims for an instance of a priority that fits on none
// of the nodes as they are. ok is false when nobody's end would make it fit.
func Choose(priority int, nodes []Node, fits Fits) (best Victims, ok bool) {
	left := steps
	for _, s := range searches(priority, nodes, fits, &left) {
		limit := len(s.candidates)
		if ok {
			limit = min(limit, len(best.Instances))
		}
		if s.fewest > limit || ok && left <= 0 || !fits(s.node, ids(s.candidates)) {
			continue
		}
		found := Victims{Node: s.node, Instances: s.cheapest(limit)}
		if found.Instances != nil && (!ok || compare(found.Instances, best.Instances) < 0) {
			best, ok = found, true
		}
	}
	return best, ok
}

// searches are those of the nodes that have candidates, beginning where the fewest
// victims may do: what they find spares the others much.
func searches(priority int, nodes []Node, fits Fits, left *int) []*search {
	var out []*search
	for _, n := range nodes {
		if c := candidates(n.Instances, priority); len(c) > 0 {
			out = append(out, newSearch(n, c, fits, left))
		}
	}
	slices.SortStableFunc(out, func(a, b *search) int { return cmp.Compare(a.fewest, b.fewest) })
	return out
}

// candidates are those that may make room, the one that costs least first.
func candidates(all []Instance, priority int) []Instance {
	var out []Instance
	for _, i := range all {
		if !i.Bound && i.Priority <= priority-Gap {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, cost)
	return out
}

// cost orders instances by how much their end costs.
func cost(a, b Instance) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(b.Placed, a.Placed), cmp.Compare(a.ID, b.ID))
}

// compare orders sets of victims, each with the one that costs most first.
func compare(a, b []Instance) int {
	if c := cmp.Compare(len(a), len(b)); c != 0 {
		return c
	}
	for n := range a {
		if c := cost(a[n], b[n]); c != 0 {
			return c
		}
	}
	return 0
}

func ids(instances []Instance) []fleet.InstanceID {
	out := make([]fleet.InstanceID, len(instances))
	for n, i := range instances {
		out[n] = i.ID
	}
	return out
}
