package place

import "fmt"

// ownFilter enforces the group's maximum number of instances per node.
var ownFilter = Filter{
	Name: "own",
	Fits: func(n *Node, q *question) bool {
		most := q.Plan.Where.MaxPerNode
		return most <= 0 || n.groups[q.Group].instances < most
	},
	Fix: func(n *Node, q *question) string {
		return fmt.Sprintf("%s has %d of the group's instances: raise maxPerNode from %d or add nodes",
			n.ID, n.groups[q.Group].instances, q.Plan.Where.MaxPerNode)
	},
	Near: func(n *Node, q *question) int { return n.groups[q.Group].instances },
}
