package place

import "fmt"

// memoryFilter wants the reserved memory to be free.
var memoryFilter = Filter{
	Name: "memory",
	Fits: func(n *Node, r *Request) bool {
		return r.Plan.Resources.MemoryMiB <= max(0, n.Free().MemoryMiB)
	},
	Fix: func(n *Node, r *Request) string {
		return fmt.Sprintf("%s has %d MiB free of %d, %d more are needed", n.ID, max(0, n.Free().MemoryMiB), n.Capacity.MemoryMiB, short(r.Plan.Resources.MemoryMiB, n.Free().MemoryMiB))
	},
	Near: func(n *Node, r *Request) int { return short(r.Plan.Resources.MemoryMiB, n.Free().MemoryMiB) },
}

// short is how much is missing.
func short(wanted, free int) int { return max(0, wanted-max(0, free)) }
