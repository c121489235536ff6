package place

import "fmt"

// memoryFilter wants the reserved memory to be free.
var memoryFilter = Filter{
	Name: "memory",
	Fits: func(n *Node, q *question) bool { return memoryShort(n, q) == 0 },
	Fix: func(n *Node, q *question) string {
		return fmt.Sprintf("%s has %d MiB free of %s, %d more are needed",
			n.ID, max(0, n.Free().MemoryMiB), ofAll(n.usable.MemoryMiB, n.Room.Reserved.MemoryMiB), memoryShort(n, q))
	},
	Near: memoryShort,
}

func memoryShort(n *Node, q *question) int {
	return short(q.Plan.Resources.MemoryMiB, n.usable.MemoryMiB-n.used.MemoryMiB)
}

// short is how much is missing.
func short(wanted, free int) int { return max(0, wanted-max(0, free)) }

// ofAll says how much of a resource there is for instances, and what is kept for the host.
func ofAll(usable, kept int) string {
	if kept <= 0 {
		return fmt.Sprint(usable)
	}
	return fmt.Sprintf("%d (%d are kept for the host)", usable, kept)
}
