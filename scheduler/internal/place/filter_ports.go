package place

import "fmt"

// portFilter wants a free port in the group's range and in that of each additional port.
var portFilter = Filter{
	Name: "ports",
	Fits: func(n *Node, r *Request) bool {
		_, _, ok := n.choosePorts(r)
		return ok
	},
	Fix: func(n *Node, r *Request) string {
		return fmt.Sprintf("no port is free on %s between %d and %d (or in an additional range): widen portRangeStart/portRangeEnd", n.ID, r.Plan.Ports.Start, r.Plan.Ports.End)
	},
}
