package place

import "fmt"

// cpuFilter requires enough unreserved CPU. The node's overcommit factor multiplies its
// cores.
var cpuFilter = Filter{
	Name: "cpu",
	Fits: func(n *Node, q *question) bool { return cpuShort(n, q) == 0 },
	Fix: func(n *Node, q *question) string {
		kept := keptNote(n.Room.Reserved.CPU)
		if want := q.Plan.Resources.CPU; want > n.usable.CPU {
			return fmt.Sprintf("%s has %d hundredths of a core in all%s, %d are requested: lower cpu, raise its cpuFactor or add a larger node", n.ID, n.usable.CPU, kept, want)
		}
		return fmt.Sprintf("%s has %d hundredths of a core free of %d%s, %d more are needed", n.ID, max(0, n.Free().CPU), n.usable.CPU, kept, cpuShort(n, q))
	},
	Near: cpuShort,
}

func cpuShort(n *Node, q *question) int { return short(q.Plan.Resources.CPU, n.usable.CPU-n.used.CPU) }
