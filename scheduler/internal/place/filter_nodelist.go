package place

import "fmt"

// nodeListFilter keeps to the nodes the group lists.
var nodeListFilter = Filter{
	Name: "nodes",
	Fits: func(n *Node, r *Request) bool { return r.Plan.Where.Allows(n.ID) },
	Fix: func(n *Node, r *Request) string {
		return fmt.Sprintf("add %s or \"*\" to the group's nodes %v", n.ID, r.Plan.Where.Nodes)
	},
}
