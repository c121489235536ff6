package place

import (
	"fmt"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// capacityFilter excludes nodes that report an impossible amount of a resource the instance
// needs.
var capacityFilter = Filter{
	Name: "capacity",
	Fits: func(n *Node, q *question) bool { return impossible(n, q) == nil },
	Fix: func(n *Node, q *question) string {
		return fmt.Sprintf("%s: %s", n.ID, errs.MessageOf(impossible(n, q)))
	},
}

// impossible returns an error when the node reports an amount that no machine can have. It
// checks only the resources that the plan needs.
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
