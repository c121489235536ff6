package place

import "fmt"

// pinFilter keeps an instance with persistent data on the node that has the data.
var pinFilter = Filter{
	Name: "data",
	Fits: func(n *Node, q *question) bool { return q.Pinned == "" || q.Pinned == n.ID },
	Fix:  func(_ *Node, q *question) string { return fmt.Sprintf("its data lies on %s only", q.Pinned) },
}
