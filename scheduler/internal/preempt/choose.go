package preempt

import (
	"cmp"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Gap is the least difference of priority between an instance and its victims.
const Gap = 10

// Instance is a running instance that may become a victim.
type Instance struct {
	ID        fleet.InstanceID
	Priority  int
	Resources fleet.Resources
	// Placed is the etcd revision of its placement. It gives an order by age that depends
	// on no clock.
	Placed int64
	// Bound means that the instance must stay regardless of its priority: it is static, has
	// players, or is already stopping.
	Bound bool
}

// Node is a node with the instances on it.
type Node struct {
	ID        fleet.NodeID
	Instances []Instance
	// Lacking is what the node lacks for the new instance, no part negative. It bounds the
	// search.
	Lacking fleet.Resources
}

// Victims are the instances to evict from a node, most expensive first.
type Victims struct {
	Node      fleet.NodeID
	Instances []Instance
}

// Fits reports whether the new instance would fit on a node without some of the instances
// there.
type Fits func(n fleet.NodeID, without []fleet.InstanceID) bool

// steps bounds one search, and so the number of calls of Fits for sets of victims.
const steps = 1 << 14

// Choose finds the cheapest victims for an instance of the given priority that fits on no
// node. ok is false when no set of victims would make it fit.
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

// searches returns a search for each node with candidates. It sorts them by the lower bound
// of victims, because a small set found early cuts the other searches short.
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

// candidates returns the instances that may become victims, cheapest first.
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

// cost compares the cost of evicting two instances.
func cost(a, b Instance) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(b.Placed, a.Placed), cmp.Compare(a.ID, b.ID))
}

// compare compares two sets of victims, each with the most expensive first.
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
