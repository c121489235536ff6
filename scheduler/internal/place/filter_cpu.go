package place

import "fmt"

// cpuFilter wants the reserved CPU to be free.
var cpuFilter = Filter{
	Name: "cpu",
	Fits: func(n *Node, r *Request) bool { return r.Plan.Resources.CPU <= max(0, n.Free().CPU) },
	Fix: func(n *Node, r *Request) string {
		return fmt.Sprintf("%s has %d hundredths of a core free of %d, %d more are needed", n.ID, max(0, n.Free().CPU), n.Capacity.CPU, short(r.Plan.Resources.CPU, n.Free().CPU))
	},
	Near: func(n *Node, r *Request) int { return short(r.Plan.Resources.CPU, n.Free().CPU) },
}
