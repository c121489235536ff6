package place

import "fmt"

// diskFilter wants the reserved disk to be free.
var diskFilter = Filter{
	Name: "disk",
	Fits: func(n *Node, q *question) bool { return diskShort(n, q) == 0 },
	Fix: func(n *Node, q *question) string {
		return fmt.Sprintf("%s has %d MiB of disk unreserved of %s, %d more are needed",
			n.ID, max(0, n.Free().DiskMiB), ofAll(n.usable.DiskMiB, n.Room.Reserved.DiskMiB), diskShort(n, q))
	},
	Near: diskShort,
}

func diskShort(n *Node, q *question) int {
	return short(q.Plan.Resources.DiskMiB, n.usable.DiskMiB-n.used.DiskMiB)
}
