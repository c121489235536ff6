package place

// sessionFilter excludes nodes whose agent has no session.
var sessionFilter = Filter{
	Name: "session",
	Fits: func(n *Node, _ *question) bool { return n.Live },
	Fix:  func(n *Node, _ *question) string { return "start the agent of " + string(n.ID) },
}
