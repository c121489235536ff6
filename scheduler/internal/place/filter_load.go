package place

import (
	"fmt"
	"slices"
)

// loadFilter excludes nodes whose load is above the bound, see Model.SetMaxCPU. It does not
// apply to an instance whose data is on the node, because that instance cannot run
// elsewhere.
var loadFilter = Filter{
	Name: FilterLoad,
	Fits: func(n *Node, q *question) bool { return n.busyAbove == 0 || !q.skipsBusy },
	Fix: func(n *Node, q *question) string {
		return fmt.Sprintf("%s uses %.1f %% of its processors, and others use %.0f %% or less: wait until it uses less, or raise max-cpu of the schedulers",
			n.ID, 100*n.CPULoad, 100*n.busyAbove)
	},
	Near: func(n *Node, _ *question) int { return int(1000 * n.CPULoad) },
}

// SetMaxCPU sets the CPU utilization, 0 to 1, above which a node takes no new instance. A
// request excludes such nodes only while a node below the bound could hold it if that node
// were empty. A node whose load is unknown is never excluded. 0 disables the bound. Call
// SetMaxCPU before the first SetNode.
func (m *Model) SetMaxCPU(most float64) { m.maxCPU = most }

// AwaitsLoad reports whether some node excludes the request only because of its load.
func (m *Model) AwaitsLoad(r *Request) bool {
	c := m.ask(r)
	if c.problem != "" {
		return false
	}
	return slices.ContainsFunc(m.joined, func(n *Node) bool {
		return c.excludedBy(n) == &loadFilter && spreadFilter.Fits(n, &c.question)
	})
}

// weighLoad excludes the busy nodes while the class has alternatives to them.
func (k *ranking) weighLoad(joined []*Node) {
	skips := k.alternatives > 0
	if skips == k.class.skipsBusy {
		return
	}
	k.class.skipsBusy = skips
	for _, n := range joined {
		if n.busyAbove > 0 {
			k.judge(n)
		}
	}
}
