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
