package place

import "fmt"

// capacityFilter keeps instances that need a resource off nodes that report an
// impossible amount of it, which counts as none.
var capacityFilter = Filter{
	Name: "capacity",
	Fits: func(n *Node, q *question) bool { return nonsense(n, q) == "" },
	Fix: func(n *Node, q *question) string {
		return fmt.Sprintf("correct the settings of %s: %s", n.ID, nonsense(n, q))
	},
}

// nonsense is the impossible figure a node reports of a resource that is needed, "" when there is none.
func nonsense(n *Node, q *question) string {
	wanted := q.Plan.Resources
	switch {
	case wanted.MemoryMiB > 0 && !possible(n.Capacity.MemoryMiB, maxMemoryMiB):
		return fmt.Sprintf("it reports %d MiB of memory", n.Capacity.MemoryMiB)
	case wanted.CPU > 0 && !possible(n.Capacity.CPU, maxCPU):
		return fmt.Sprintf("it reports %d hundredths of a core", n.Capacity.CPU)
	case wanted.DiskMiB > 0 && !possible(n.Capacity.DiskMiB, maxDiskMiB):
		return fmt.Sprintf("it reports %d MiB of disk", n.Capacity.DiskMiB)
	}
	return ""
}
