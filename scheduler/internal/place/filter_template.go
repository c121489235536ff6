package place

import "fmt"

// templateFilter requires the host's disk to have room for the instance's files, when both
// sizes are known. Reservations alone do not show this, because other programs fill the
// disk too.
var templateFilter = Filter{
	Name: FilterTemplate,
	Fits: func(n *Node, q *question) bool { return filesShort(n, q) == 0 },
	Fix: func(n *Node, q *question) string {
		return fmt.Sprintf("the disk of %s has %d MiB free, its templates hold %d: free %d MiB there",
			n.ID, n.DiskFreeMiB, q.TemplateMiB, filesShort(n, q))
	},
	Near: filesShort,
}

func filesShort(n *Node, q *question) int {
	if n.DiskMiB == 0 && n.DiskFreeMiB == 0 {
		return 0
	}
	return short(q.TemplateMiB, n.DiskFreeMiB)
}
