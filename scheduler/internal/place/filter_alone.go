package place

import (
	"fmt"
	"maps"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// aloneFilter keeps a group that wants its nodes for itself off nodes that hold
// others, and others off the nodes of such a group.
var aloneFilter = Filter{
	Name: "alone",
	Fits: func(n *Node, q *question) bool {
		if n.alone == 0 && !q.Plan.Where.Alone { // most nodes and groups
			return true
		}
		own := n.groups[q.Group]
		return n.alone == own.alone && (!q.Plan.Where.Alone || n.instances == own.instances)
	},
	Fix: func(n *Node, q *question) string {
		for _, g := range slices.Sorted(maps.Keys(n.groups)) {
			if g != q.Group && n.groups[g].alone > 0 {
				return fmt.Sprintf("%s belongs to instances of %s, which want it for themselves", n.ID, g)
			}
		}
		others := othersOn(n, q.Group)
		return fmt.Sprintf("%s holds instances of %v, and the group wants its nodes for itself: add an empty node", n.ID, others)
	},
	Near: func(n *Node, q *question) int { return n.instances - n.groups[q.Group].instances },
}

// othersOn are the other groups with instances on a node, at most three.
func othersOn(n *Node, g fleet.GroupName) []fleet.GroupName {
	others := slices.Sorted(maps.Keys(n.groups))
	others = slices.DeleteFunc(others, func(o fleet.GroupName) bool { return o == g })
	return others[:min(3, len(others))]
}
