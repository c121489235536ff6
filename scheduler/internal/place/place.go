package place

import (
	"hash/fnv"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Request is one instance to be placed.
type Request struct {
	ID    fleet.InstanceID
	Group fleet.GroupName
	Plan  *fleet.Plan
	// Pinned is the only node allowed, because the instance's data lies there. Empty: any.
	Pinned fleet.NodeID
	// PreferredPort is taken again if it is free, on PreferredNode.
	PreferredPort int
	PreferredNode fleet.NodeID
}

// Choice is where an instance goes. The model has been charged with Hold.
type Choice struct {
	Node  fleet.NodeID
	Port  int
	Ports map[string]int
	Hold  Hold
	Score Score
}

// Unfit says why no node can take an instance now.
type Unfit struct {
	Reason  fleet.Reason
	Message string
	// Lost counts the nodes each filter excluded, most first. A node counts for the
	// first filter that excludes it.
	Lost  []fleet.FilterLoss
	Nodes int
}

// Place chooses a node and ports for a request and charges the model, or says
// why it cannot.
func (m *Model) Place(r *Request) (Choice, *Unfit) {
	var (
		best  *Node
		score Score
		tie   uint64
	)
	losses, spread := newLosses(), newSpread(r, m.joined)
	for _, n := range m.joined {
		if f := excludedBy(n, r); f != nil {
			losses.add(f, n, r)
			continue
		}
		s := scoreOf(n, r, spread)
		h := tieBreak(r.ID, n.ID)
		if best == nil || s.Total > score.Total || s.Total == score.Total && h > tie {
			best, score, tie = n, s, h
		}
	}
	if best == nil {
		return Choice{}, losses.explain(len(m.joined), r)
	}
	preferred := *r
	if r.PreferredNode != best.ID {
		preferred.PreferredPort = 0
	}
	port, named, _ := best.choosePorts(&preferred) // the ports filter has made sure
	c := Choice{Node: best.ID, Port: port, Ports: named, Score: score, Hold: HoldOf(best.ID, r.Group, r.Plan.Resources, port, named)}
	m.Charge(c.Hold)
	return c, nil
}

// HoldOf is what a placement occupies.
func HoldOf(n fleet.NodeID, g fleet.GroupName, res fleet.Resources, port int, named map[string]int) Hold {
	h := Hold{Node: n, Group: g, Resources: res, Ports: []int{port}}
	for _, p := range named {
		h.Ports = append(h.Ports, p)
	}
	return h
}

// tieBreak orders equal nodes differently for each instance, but always the same way.
func tieBreak(id fleet.InstanceID, n fleet.NodeID) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(n))
	return h.Sum64()
}
