package budget

import (
	"iter"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Node is a node as the ledger sees it.
type Node struct {
	// Usable means that its agent has a session and that it is not cordoned.
	Usable bool
	// Capacity is what instances may reserve.
	Capacity fleet.Resources
	// MaxInstances limits the instances on the node. 0 means no limit.
	MaxInstances int
}

// rooms sum up the free resources of all usable nodes.
type rooms struct {
	nodes map[fleet.NodeID]*room
	free  fleet.Budget
	// unbounded counts the usable nodes without a limit of instances.
	unbounded int
}

type room struct {
	Node
	used fleet.Budget
}

// SetNode adds a node or changes its facts. The holds on it stay.
func (r *rooms) SetNode(id fleet.NodeID, n Node) {
	r.change(id, func(have *room) { have.Node = n })
}

// RemoveNode removes a node's facts. The ledger keeps what is still held on it.
func (r *rooms) RemoveNode(id fleet.NodeID) { r.SetNode(id, Node{}) }

// Free returns what is free on all usable nodes together, and whether the number of
// instances is limited.
func (r *rooms) Free() (free fleet.Budget, bounded bool) { return r.free, r.unbounded == 0 }

// Use is a node with the resources that instances hold on it.
type Use struct {
	Node
	Held fleet.Budget
}

// Nodes returns all known nodes in no particular order.
func (r *rooms) Nodes() iter.Seq2[fleet.NodeID, Use] {
	return func(yield func(fleet.NodeID, Use) bool) {
		for id, n := range r.nodes {
			if !yield(id, Use{n.Node, n.used}) {
				return
			}
		}
	}
}

func (r *rooms) occupy(id fleet.NodeID, res fleet.Resources, sign int) {
	r.change(id, func(have *room) {
		have.used = have.used.Add(fleet.Budget{MemoryMiB: sign * res.MemoryMiB, CPU: sign * res.CPU, Instances: sign})
	})
}

func (r *rooms) change(id fleet.NodeID, edit func(*room)) {
	n, ok := r.nodes[id]
	if !ok {
		n = &room{}
		r.nodes[id] = n
	}
	r.free, r.unbounded = r.free.Sub(n.free()), r.unbounded-n.unbounded()
	edit(n)
	r.free, r.unbounded = r.free.Add(n.free()), r.unbounded+n.unbounded()
	if *n == (room{}) { // the node has gone, and nothing is held on it
		delete(r.nodes, id)
	}
}

func (n *room) free() fleet.Budget {
	if !n.Usable {
		return fleet.Budget{}
	}
	return floor(fleet.Budget{MemoryMiB: n.Capacity.MemoryMiB, CPU: n.Capacity.CPU, Instances: n.MaxInstances}.Sub(n.used))
}

func (n *room) unbounded() int {
	if n.Usable && n.MaxInstances == 0 {
		return 1
	}
	return 0
}
