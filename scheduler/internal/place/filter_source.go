package place

// sourceFilter keeps an instance that moves off the node that it is on.
var sourceFilter = Filter{
	Name: "source",
	Fits: func(n *Node, q *question) bool { return q.Leaves == "" || q.Leaves != n.ID },
	Fix:  func(n *Node, _ *question) string { return "it is already on " + string(n.ID) },
}
