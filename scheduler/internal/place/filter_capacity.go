package place

import (
	"fmt"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// capacityFilter keeps instances that need a resource off nodes that report an
// impossible amount of it, which counts as none.
var capacityFilter = Filter{
	Name: "capacity",
	Fits: func(n *Node, q *question) bool { return impossible(n, q) == nil },
	Fix: func(n *Node, q *question) string {
		return fmt.Sprintf("%s: %s", n.ID, errs.MessageOf(impossible(n, q)))
	},
}

// impossible is what no machine can have of the resources that are needed, nil when
// the node's figures can be.
func impossible(n *Node, q *question) error {
	needed := n.Capacity
	if q.Plan.Resources.MemoryMiB <= 0 {
		needed.MemoryMiB = 0
	}
	if q.Plan.Resources.CPU <= 0 {
		needed.CPU = 0
	}
	if q.Plan.Resources.DiskMiB <= 0 {
		needed.DiskMiB = 0
	}
	_, err := fleet.NodeRoom{}.Of(needed)
	return err
}
