package place

import "fmt"

// portFilter wants a free port in the group's range and in that of each additional
// port, all different. TCP and UDP are counted as one number.
var portFilter = Filter{
	Name: "ports",
	Fits: func(n *Node, q *question) bool {
		if len(q.named) == 0 {
			return n.ports.heldIn(q.Plan.Ports) < q.Plan.Ports.Len()
		}
		var buf [8]int
		_, ok := n.choosePorts(q, 0, buf[:0])
		return ok
	},
	Fix: func(n *Node, q *question) string {
		if n.ports.heldIn(q.Plan.Ports) >= q.Plan.Ports.Len() {
			return fmt.Sprintf("no port is free on %s between %d and %d: widen portRangeStart/portRangeEnd", n.ID, q.Plan.Ports.Start, q.Plan.Ports.End)
		}
		for _, np := range q.named {
			if n.ports.heldIn(np.Range) >= np.Range.Len() {
				return fmt.Sprintf("no port is free on %s between %d and %d: widen the range of the port %s", n.ID, np.Range.Start, np.Range.End, np.Name)
			}
		}
		return fmt.Sprintf("no port is free on %s for each of the group's ports, whose ranges overlap: widen them", n.ID)
	},
	Near: func(n *Node, q *question) int { return n.ports.heldIn(q.Plan.Ports) },
}
