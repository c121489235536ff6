package place

// cordonFilter excludes nodes that the operator has cordoned.
var cordonFilter = Filter{
	Name: "cordon",
	Fits: func(n *Node, _ *question) bool { return !n.Cordoned },
	Fix:  func(n *Node, _ *question) string { return "uncordon " + string(n.ID) },
}
