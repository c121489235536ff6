package place

import (
	"fmt"

	"github.com/orreryhq/orrery/libs/fleet"
)

// runtimeFilter requires the node to offer the group's runtime.
var runtimeFilter = Filter{
	Name: "runtime",
	Fits: func(n *Node, q *question) bool {
		return fleet.Node{Runtimes: n.Runtimes}.Offers(q.Plan.Runtime)
	},
	Fix: func(n *Node, q *question) string {
		why := "its agent does not know it"
		for _, o := range n.Runtimes {
			if o.Name == q.Plan.Runtime && o.Why != "" {
				why = o.Why
			}
		}
		return fmt.Sprintf("%s does not offer %s: %s", n.ID, q.Plan.Runtime, why)
	},
}
