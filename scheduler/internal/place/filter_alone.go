package place

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
)

// aloneFilter keeps a group that wants its nodes exclusively off nodes with other groups,
// and keeps other groups off its nodes.
var aloneFilter = Filter{
	Name: "alone",
	Fits: func(n *Node, q *question) bool {
		if n.alone == 0 && !q.Plan.Where.Alone { // fast path: true for most nodes and groups
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
		return fmt.Sprintf("%s holds instances of %s, and the group wants its nodes for itself: add an empty node", n.ID, someOf(othersOn(n, q.Group)))
	},
	Near: func(n *Node, q *question) int { return n.instances - n.groups[q.Group].instances },
}

// othersOn returns the other groups with instances on a node, sorted.
func othersOn(n *Node, g fleet.GroupName) []fleet.GroupName {
	others := slices.Sorted(maps.Keys(n.groups))
	return slices.DeleteFunc(others, func(o fleet.GroupName) bool { return o == g })
}

// someOf lists the first three names and counts the rest.
func someOf[T ~string](all []T) string {
	var names []string
	for _, one := range all[:min(3, len(all))] {
		names = append(names, string(one))
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
