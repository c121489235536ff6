package place

// sessionFilter keeps instances off nodes whose agent does not answer.
var sessionFilter = Filter{
	Name: "session",
	Fits: func(n *Node, _ *Request) bool { return n.Live },
	Fix:  func(n *Node, _ *Request) string { return "start the agent of " + string(n.ID) },
}
