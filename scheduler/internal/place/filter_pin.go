package place

import "fmt"

// pinFilter keeps an instance with persistent data on the node that has it.
var pinFilter = Filter{
	Name: "data",
	Fits: func(n *Node, r *Request) bool { return r.Pinned == "" || r.Pinned == n.ID },
	Fix:  func(_ *Node, r *Request) string { return fmt.Sprintf("its data lies on %s only", r.Pinned) },
}
