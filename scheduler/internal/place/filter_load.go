package place

import "fmt"

// loadFilter keeps a node free that is busier than the model's bound while another is
// not; see Model.SetMaxCPU. An instance whose data is on the node can go nowhere else.
var loadFilter = Filter{
	Name: FilterLoad,
	Fits: func(n *Node, q *question) bool { return n.busyAbove == 0 || q.Pinned != "" },
	Fix: func(n *Node, q *question) string {
		return fmt.Sprintf("%s uses %.1f %% of its processors, and others use %.0f %% or less: wait until it uses less, or raise max-cpu of the schedulers",
			n.ID, 100*n.CPULoad, 100*n.busyAbove)
	},
	Near: func(n *Node, _ *question) int { return int(1000 * n.CPULoad) },
}

// SetMaxCPU bounds the measured use of processors, 0 to 1, above which a node takes nothing
// new. It excludes no node while every node that takes instances is above it, and never one
// whose use is unknown. 0 excludes none. It must be called before the first SetNode.
func (m *Model) SetMaxCPU(most float64) { m.maxCPU = most }

// Cooled reports whether a node has stopped being excluded for its load since the call before.
func (m *Model) Cooled() bool {
	cooled := m.cooled
	m.cooled = false
	return cooled
}

// isCalm reports whether a node takes instances and is not above the bound.
func (m *Model) isCalm(n *Node) bool {
	return n.Runtimes != nil && n.Live && !n.Cordoned && !m.above(n)
}

func (m *Model) above(n *Node) bool { return m.maxCPU > 0 && n.CPULoad > m.maxCPU }

// loadChanged takes in that a node changed that was calm, or was not. The first calm node
// and the last one decide for all others.
func (m *Model) loadChanged(n *Node, was bool) {
	before := m.calm > 0
	if is := m.isCalm(n); is && !was {
		m.calm++
	} else if was && !is {
		m.calm--
	}
	if before == (m.calm > 0) {
		m.weighLoad(n)
		return
	}
	for _, n := range m.joined {
		m.weighLoad(n)
	}
}

// weighLoad excludes a node for its load, or ends that.
func (m *Model) weighLoad(n *Node) {
	bound := 0.0
	if m.calm > 0 && m.above(n) {
		bound = m.maxCPU
	}
	if bound == n.busyAbove {
		return
	}
	m.cooled = m.cooled || bound == 0
	n.busyAbove = bound
	m.touch(n)
}
