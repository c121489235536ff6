package place

import (
	"fmt"

	"github.com/orreryhq/orrery/libs/fleet"
)

// runtimeFilter wants a node that offers the group's runtime.
var runtimeFilter = Filter{
	Name: "runtime",
	Fits: func(n *Node, r *Request) bool {
		return fleet.Node{Runtimes: n.Runtimes}.Offers(r.Plan.Runtime)
	},
	Fix: func(n *Node, r *Request) string {
		why := "its agent does not know it"
		for _, o := range n.Runtimes {
			if o.Name == r.Plan.Runtime && o.Why != "" {
				why = o.Why
			}
		}
		return fmt.Sprintf("%s does not offer %s: %s", n.ID, r.Plan.Runtime, why)
	},
}
