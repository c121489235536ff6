package place

import "fmt"

// diskFilter requires enough unreserved disk.
var diskFilter = Filter{
	Name: "disk",
	Fits: func(n *Node, q *question) bool { return diskShort(n, q) == 0 },
	Fix: func(n *Node, q *question) string {
		kept := keptNote(n.Room.Reserved.DiskMiB)
		if want := q.Plan.Resources.DiskMiB; want > n.usable.DiskMiB {
			return fmt.Sprintf("%s has %d MiB of disk in all%s, %d are requested: lower diskReservationMb or add a larger node", n.ID, n.usable.DiskMiB, kept, want)
		}
		return fmt.Sprintf("%s has %d MiB of disk unreserved of %d%s, %d more are needed", n.ID, max(0, n.Free().DiskMiB), n.usable.DiskMiB, kept, diskShort(n, q))
	},
	Near: diskShort,
}

func diskShort(n *Node, q *question) int {
	return short(q.Plan.Resources.DiskMiB, n.usable.DiskMiB-n.used.DiskMiB)
}
