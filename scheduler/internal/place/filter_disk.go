package place

import "fmt"

// diskFilter wants the reserved disk to be free, where a node says what it has.
var diskFilter = Filter{
	Name: "disk",
	Fits: func(n *Node, r *Request) bool { return r.Plan.Resources.DiskMiB <= max(0, n.Free().DiskMiB) },
	Fix: func(n *Node, r *Request) string {
		return fmt.Sprintf("%s has %d MiB of disk unreserved, %d more are needed", n.ID, max(0, n.Free().DiskMiB), short(r.Plan.Resources.DiskMiB, n.Free().DiskMiB))
	},
	Near: func(n *Node, r *Request) int { return short(r.Plan.Resources.DiskMiB, n.Free().DiskMiB) },
}
