package place

import "fmt"

// instancesFilter enforces a node's maximum number of instances.
var instancesFilter = Filter{
	Name: "instances",
	Fits: func(n *Node, _ *question) bool { return n.Room.MaxInstances <= 0 || n.instances < n.Room.MaxInstances },
	Fix: func(n *Node, _ *question) string {
		return fmt.Sprintf("%s has as many instances as it may, %d: raise its maxInstances", n.ID, n.instances)
	},
	Near: func(n *Node, _ *question) int { return n.instances - n.Room.MaxInstances },
}
