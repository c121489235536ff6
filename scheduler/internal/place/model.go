package place

import (
	"cmp"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/policy"
)

// Node is a node as placement sees it.
type Node struct {
	ID fleet.NodeID
	// Live means that the node's agent has a session. Cordoned means that the operator
	// keeps new instances off the node.
	Live, Cordoned bool
	Runtimes       []fleet.NodeRuntime
	Labels         map[string]string
	// Policy is what instances may use. Nil admits everything.
	Policy *policy.Policy
	// Capacity is what the node reports; Room says how much of it instances may use.
	Capacity fleet.Resources
	Room     fleet.NodeRoom
	// CPULoad is the host's CPU utilization, 0..1. DiskMiB is the size of its disk, and
	// DiskFreeMiB is what is free of it. The agent measures them. A CPULoad of 0 means
	// unknown, and so do a DiskMiB and a DiskFreeMiB of 0 together.
	CPULoad              float64
	DiskMiB, DiskFreeMiB int
	// BlockedBy lists the programs that hold blocked ports, as far as the agent knows them.
	BlockedBy []fleet.BlockedPort
	// Warm lists the digests of the templates in its cache, sorted.
	Warm []string

	// usable is the capacity that instances may reserve.
	usable fleet.Resources
	// used, ports, instances and groups sum up what instances hold; Charge and Release
	// maintain them. alone counts the instances whose group wants the node exclusively.
	used      fleet.Resources
	ports     portSet
	instances int
	alone     int
	groups    map[fleet.GroupName]tally
	// blocked are the ports held by foreign programs.
	blocked []int
	// failures are the recent failures on the node, oldest first. The slice is replaced,
	// never modified.
	failures []failure
	// preferred means that the model prefers the node; share is the score it gets for that.
	preferred bool
	share     int64
	// busyAbove is the bound of SetMaxCPU when the load is above it, else 0.
	busyAbove float64
	// slot is the node's index in Model.slots.
	slot int
	// facts is a version number. It grows whenever the node itself changes, and when
	// the slot passes to another node. Charge and Release do not change it.
	facts uint32
}

// tally counts a group's instances on a node; alone counts those that want the node
// exclusively.
type tally struct{ instances, alone int }

// Free returns the unreserved resources. They are negative where the instances hold more
// than the node allows.
func (n *Node) Free() fleet.Resources { return n.usable.Sub(n.used) }

// Hold is what one instance occupies on a node.
type Hold struct {
	Node      fleet.NodeID
	Group     fleet.GroupName
	Resources fleet.Resources
	// Ports are all its port numbers; 0 means none.
	Ports []int
	// Alone means that its group wants the node exclusively.
	Alone bool
}

// Model holds the nodes and what instances hold on them. One goroutine owns it.
type Model struct {
	nodes map[fleet.NodeID]*Node
	// joined are the nodes that have joined, sorted by ID.
	joined []*Node
	// slots are all known nodes; unused are the indexes of forgotten nodes, for reuse.
	slots  []*Node
	unused []int
	// changed lists the slots of changed nodes, for the classes to catch up with.
	changed []int
	classes map[classKey]*class
	// asked counts the requests.
	asked uint64
	// failing are the nodes with failures; expired is the time of the last scan by Expire.
	failing []*Node
	expired time.Time
	// prefers and onlyOwn are the arguments of Prefer. A nil prefers means no preference.
	prefers func(fleet.NodeID) bool
	onlyOwn bool
	// maxCPU is the argument of SetMaxCPU.
	maxCPU float64
}

// NewModel returns a model without nodes.
func NewModel() *Model {
	return &Model{nodes: map[fleet.NodeID]*Node{}, classes: map[classKey]*class{}}
}

// SetNode adds a node or replaces its own facts; what instances hold on it stays. A node
// has joined once its Runtimes are not nil.
func (m *Model) SetNode(n Node, blocked []int) {
	have := m.node(n.ID)
	if joins := n.Runtimes != nil; joins != (have.Runtimes != nil) {
		m.list(have, joins)
	}
	before := have.blocked
	n.usable, _ = n.Room.Of(n.Capacity) // capacityFilter reports this error
	n.used, n.ports, n.instances, n.alone, n.groups = have.used, have.ports, have.instances, have.alone, have.groups
	n.failures, n.slot, n.facts, n.preferred, n.share = have.failures, have.slot, have.facts, have.preferred, have.share
	if n.busyAbove = 0; m.maxCPU > 0 && n.CPULoad > m.maxCPU {
		n.busyAbove = m.maxCPU
	}
	n.blocked = slices.Clone(blocked)
	*have = n
	for _, p := range before {
		have.ports.release(p)
	}
	for _, p := range have.blocked {
		have.ports.take(p)
	}
	m.newFacts(have)
	m.forget(have)
}

// newFacts records that the node itself changed, and not only what it holds.
func (m *Model) newFacts(n *Node) {
	n.facts++
	m.touch(n)
}

// RemoveNode removes a node's own facts. The model keeps what instances hold on it, in case
// the node comes back.
func (m *Model) RemoveNode(id fleet.NodeID) {
	if n, ok := m.nodes[id]; ok {
		m.SetNode(Node{ID: n.ID}, nil)
	}
}

// node returns the entry of a node. It creates a missing one, because a hold may arrive
// before its node.
func (m *Model) node(id fleet.NodeID) *Node {
	if n, ok := m.nodes[id]; ok {
		return n
	}
	n := &Node{ID: id, groups: map[fleet.GroupName]tally{}, slot: len(m.slots)}
	n.preferred, n.share = m.isPreferred(id)
	if last := len(m.unused) - 1; last >= 0 {
		n.slot, m.unused = m.unused[last], m.unused[:last]
		n.facts = m.slots[n.slot].facts + 1
		m.slots[n.slot] = n
	} else {
		m.slots = append(m.slots, n)
	}
	m.nodes[id] = n
	return n
}

// forget deletes a node that has left, once nothing is held on it and it has no recent
// failures. Its slot keeps pointing to it until another node takes the slot.
func (m *Model) forget(n *Node) {
	if n.Runtimes != nil || len(n.groups) > 0 || n.instances != 0 || len(n.ports.held) > 0 || len(n.failures) > 0 || n.used != (fleet.Resources{}) {
		return
	}
	delete(m.nodes, n.ID)
	m.unused = append(m.unused, n.slot)
}

// list adds a node to the joined nodes or removes it.
func (m *Model) list(n *Node, joins bool) {
	i, _ := slices.BinarySearchFunc(m.joined, n.ID, func(have *Node, id fleet.NodeID) int { return cmp.Compare(have.ID, id) })
	if joins {
		m.joined = slices.Insert(m.joined, i, n)
	} else {
		m.joined = slices.Delete(m.joined, i, i+1)
	}
}

// Charge adds what an instance holds.
func (m *Model) Charge(h Hold) {
	n := m.node(h.Node)
	n.used = n.used.Add(h.Resources)
	n.count(h, 1)
	for _, p := range h.Ports {
		n.ports.take(p)
	}
	m.touch(n)
}

// Release undoes Charge.
func (m *Model) Release(h Hold) {
	n := m.node(h.Node)
	n.used = n.used.Sub(h.Resources)
	n.count(h, -1)
	for _, p := range h.Ports {
		n.ports.release(p)
	}
	m.touch(n)
	m.forget(n)
}

// count adds by to the numbers of instances on the node.
func (n *Node) count(h Hold, by int) {
	t := n.groups[h.Group]
	t.instances += by
	n.instances += by
	if h.Alone {
		t.alone += by
		n.alone += by
	}
	if t == (tally{}) {
		delete(n.groups, h.Group)
		return
	}
	n.groups[h.Group] = t
}
