package place

// policyFilter requires the policy of the node's agent to admit what the group asks for. The agent checks
// again at each start.
var policyFilter = Filter{
	Name: "policy",
	Fits: func(n *Node, q *question) bool { return n.Policy.Check(q.asks) == nil },
	Fix:  func(n *Node, q *question) string { return n.Policy.Check(q.asks).On(string(n.ID)) },
}
