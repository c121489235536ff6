package place

import (
	"fmt"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// portFilter requires a free port in the group's range and one in the range of each
// additional port, all different. TCP and UDP count as one number.
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
			return fmt.Sprintf("no port is free on %s between %d and %d: %swiden portRangeStart/portRangeEnd", n.ID, q.Plan.Ports.Start, q.Plan.Ports.End, n.endStranger(q.Plan.Ports))
		}
		for _, np := range q.named {
			if n.ports.heldIn(np.Range) >= np.Range.Len() {
				return fmt.Sprintf("no port is free on %s between %d and %d: %swiden the range of the port %s", n.ID, np.Range.Start, np.Range.End, n.endStranger(np.Range), np.Name)
			}
		}
		return fmt.Sprintf("no port is free on %s for each of the group's ports, whose ranges overlap: widen them", n.ID)
	},
	Near: func(n *Node, q *question) int { return n.ports.heldIn(q.Plan.Ports) },
}

// endStranger advises to end a program that holds a blocked port of the range. It returns
// "" when no such program is known.
func (n *Node) endStranger(r fleet.PortRange) string {
	for _, s := range n.BlockedBy {
		if s.By != "" && r.Contains(s.Port) && slices.Contains(n.blocked, s.Port) {
			return fmt.Sprintf("end %s, which holds %d, or ", s.By, s.Port)
		}
	}
	return ""
}
