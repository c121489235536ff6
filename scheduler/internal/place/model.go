package place

import (
	"cmp"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Node is what placement knows of a node.
type Node struct {
	ID fleet.NodeID
	// Live is whether its agent has a session, Cordoned whether the operator keeps it free.
	Live, Cordoned bool
	Runtimes       []fleet.NodeRuntime
	Labels         map[string]string
	Capacity       fleet.Resources
	// CPULoad is the host's use, 0..1, as its agent reported it.
	CPULoad float64

	// used, ports and groups are what instances hold, charged and released by the Model.
	used      fleet.Resources
	ports     portSet
	instances int
	groups    map[fleet.GroupName]int
	// blocked are ports that strangers hold.
	blocked []int
	// slot is its index among all nodes ever known.
	slot int
}

// Free is the room left.
func (n *Node) Free() fleet.Resources { return n.Capacity.Sub(n.used) }

// Hold is what one instance occupies on a node.
type Hold struct {
	Node      fleet.NodeID
	Group     fleet.GroupName
	Resources fleet.Resources
	// Ports are all port numbers it has; 0 is none.
	Ports []int
}

// Model is the nodes with what is held on them. It is owned by one goroutine.
type Model struct {
	nodes map[fleet.NodeID]*Node
	// joined are the nodes that have joined, in order of id.
	joined []*Node
	// slots are all nodes ever known, in the order they became so.
	slots []*Node
	// changed are the slots of nodes that changed since the oldest class was made,
	// for the classes to catch up with.
	changed []int
	classes map[classKey]*class
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
	n.used, n.ports, n.instances, n.groups = have.used, have.ports, have.instances, have.groups
	n.slot = have.slot
	n.blocked = slices.Clone(blocked)
	*have = n
	for _, p := range before {
		have.ports.release(p)
	}
	for _, p := range have.blocked {
		have.ports.take(p)
	}
	m.touch(have)
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
	n := &Node{ID: id, groups: map[fleet.GroupName]int{}, slot: len(m.slots)}
	m.nodes[id], m.slots = n, append(m.slots, n)
	return n
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
	n.instances++
	n.groups[h.Group]++
	for _, p := range h.Ports {
		n.ports.take(p)
	}
	m.touch(n)
}

// Release undoes Charge.
func (m *Model) Release(h Hold) {
	n := m.node(h.Node)
	n.used = n.used.Sub(h.Resources)
	n.instances--
	if n.groups[h.Group]--; n.groups[h.Group] <= 0 {
		delete(n.groups, h.Group)
	}
	for _, p := range h.Ports {
		n.ports.release(p)
	}
	m.touch(n)
}
