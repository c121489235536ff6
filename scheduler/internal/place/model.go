package place

import (
	"cmp"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Node is what placement knows of a node.
type Node struct {
	ID fleet.NodeID
	// Live is whether its agent has a session, Cordoned whether the operator keeps it free.
	Live, Cordoned bool
	Runtimes       []fleet.NodeRuntime
	Labels         map[string]string
	// Capacity is what the node reports, Room how much of it instances may use.
	Capacity fleet.Resources
	Room     fleet.NodeRoom
	// CPULoad is the host's use, 0..1, DiskMiB its disk and DiskFreeMiB what is free of
	// it, as its agent measured them. A load of 0 and a disk of which both are 0 are
	// unknown.
	CPULoad              float64
	DiskMiB, DiskFreeMiB int
	// BlockedBy are the programs that hold blocked ports, as far as its agent knows them.
	BlockedBy []fleet.BlockedPort
	// Warm are digests of templates in its cache, in order.
	Warm []string

	// usable is what instances may reserve.
	usable fleet.Resources
	// used, ports, instances and groups are what instances hold, charged and released by
	// the Model; alone is how many of them want the node for their group.
	used      fleet.Resources
	ports     portSet
	instances int
	alone     int
	groups    map[fleet.GroupName]tally
	// blocked are ports that strangers hold.
	blocked []int
	// failures are what went wrong on it of late, in order of arrival. The slice is
	// replaced, never changed.
	failures []failure
	// preferred is whether the model prefers it, share what it scores more for that.
	preferred bool
	share     int64
	// busyAbove is the bound of SetMaxCPU when its load is above it, else 0.
	busyAbove float64
	// slot is its index among all known nodes.
	slot int
	// facts grows with each change of what does not depend on what it holds, also from
	// one node to the next in its slot.
	facts uint32
}

// tally counts a group's instances on a node.
type tally struct{ instances, alone int }

// Free is the room left for instances; negative where more is held than may be.
func (n *Node) Free() fleet.Resources { return n.usable.Sub(n.used) }

// Hold is what one instance occupies on a node.
type Hold struct {
	Node      fleet.NodeID
	Group     fleet.GroupName
	Resources fleet.Resources
	// Ports are all port numbers it has; 0 is none.
	Ports []int
	// Alone is whether its group wants the node for itself.
	Alone bool
}

// Model is the nodes with what is held on them. It is owned by one goroutine.
type Model struct {
	nodes map[fleet.NodeID]*Node
	// joined are the nodes that have joined, in order of id.
	joined []*Node
	// slots are all known nodes; unused are the places of those that were forgotten.
	slots  []*Node
	unused []int
	// changed are the slots of nodes that changed, for the classes to catch up with.
	changed []int
	classes map[classKey]*class
	// asked counts requests.
	asked uint64
	// failing are the nodes with failures, expired is when they were looked at last.
	failing []*Node
	expired time.Time
	// prefers and apart are what Prefer was told; nil prefers no node.
	prefers func(fleet.NodeID) bool
	apart   bool
	// maxCPU is what SetMaxCPU was told.
	maxCPU float64
}

// NewModel is a model without nodes.
func NewModel() *Model {
	return &Model{nodes: map[fleet.NodeID]*Node{}, classes: map[classKey]*class{}}
}

// SetNode adds or changes a node's own facts; what is held on it stays. A node
// has joined once its Runtimes are not nil.
func (m *Model) SetNode(n Node, blocked []int) {
	have := m.node(n.ID)
	if joins := n.Runtimes != nil; joins != (have.Runtimes != nil) {
		m.list(have, joins)
	}
	before := have.blocked
	n.usable, _ = n.Room.Of(n.Capacity) // what is wrong with it, its filter says
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

// newFacts notes that a node itself has changed, and not only what it holds.
func (m *Model) newFacts(n *Node) {
	n.facts++
	m.touch(n)
}

// RemoveNode takes a node's own facts away; what is held on it is remembered, in
// case it comes back.
func (m *Model) RemoveNode(id fleet.NodeID) {
	if n, ok := m.nodes[id]; ok {
		m.SetNode(Node{ID: n.ID}, nil)
	}
}

// node is the node's entry, made when missing: holds may be known before their node.
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

// forget lets a node go that has left, on which nothing is held and nothing failed of
// late. Its slot shows that it has left until another node gets it.
func (m *Model) forget(n *Node) {
	if n.Runtimes != nil || len(n.groups) > 0 || n.instances != 0 || len(n.ports.held) > 0 || len(n.failures) > 0 || n.used != (fleet.Resources{}) {
		return
	}
	delete(m.nodes, n.ID)
	m.unused = append(m.unused, n.slot)
}

// list puts a node among the joined ones, or takes it away.
func (m *Model) list(n *Node, joins bool) {
	i, _ := slices.BinarySearchFunc(m.joined, n.ID, func(have *Node, id fleet.NodeID) int { return cmp.Compare(have.ID, id) })
	if joins {
		m.joined = slices.Insert(m.joined, i, n)
	} else {
		m.joined = slices.Delete(m.joined, i, i+1)
	}
}

// Charge books what an instance holds.
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

// count adds to the number of instances on the node.
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
