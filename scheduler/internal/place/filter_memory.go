package place

import "fmt"

// memoryFilter requires enough unreserved memory.
var memoryFilter = Filter{
	Name: "memory",
	Fits: func(n *Node, q *question) bool { return memoryShort(n, q) == 0 },
	Fix: func(n *Node, q *question) string {
		kept := keptNote(n.Room.Reserved.MemoryMiB)
		if want := q.Plan.Resources.MemoryMiB; want > n.usable.MemoryMiB {
			return fmt.Sprintf("%s has %d MiB in all%s, %d are requested: lower memoryMb or add a larger node", n.ID, n.usable.MemoryMiB, kept, want)
		}
		return fmt.Sprintf("%s has %d MiB free of %d%s, %d more are needed", n.ID, max(0, n.Free().MemoryMiB), n.usable.MemoryMiB, kept, memoryShort(n, q))
	},
	Near: memoryShort,
}

func memoryShort(n *Node, q *question) int {
	return short(q.Plan.Resources.MemoryMiB, n.usable.MemoryMiB-n.used.MemoryMiB)
}

// short returns how much is missing, at least 0.
func short(wanted, free int) int { return max(0, wanted-max(0, free)) }

// keptNote says how much of a resource is reserved for the host.
func keptNote(kept int) string {
	if kept <= 0 {
		return ""
	}
	return fmt.Sprintf(" (%d are kept for the host)", kept)
}
