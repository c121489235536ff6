package place

import "fmt"

// nodeListFilter excludes nodes that the group does not list.
var nodeListFilter = Filter{
	Name: "nodes",
	Fits: func(n *Node, q *question) bool { return q.Plan.Where.Allows(n.ID) },
	Fix: func(n *Node, q *question) string {
		return fmt.Sprintf("add %s or \"*\" to the group's nodes, now %s", n.ID, someOf(q.Plan.Where.Nodes))
	},
}
