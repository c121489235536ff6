package place

import "github.com/orreryhq/orrery/libs/fleet"

// Request is one instance to be placed.
type Request struct {
	ID    fleet.InstanceID
	Group fleet.GroupName
	// Plan must not change after it was asked for once: its address stands for it.
	Plan *fleet.Plan
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
	sp := newSpread(r, m.joined)
	best := m.best(r, sp)
	if best == nil {
		return Choice{}, m.explain(r)
	}
	preferred := *r
	if r.PreferredNode != best.ID {
		preferred.PreferredPort = 0
	}
	port, named, _ := best.choosePorts(&preferred) // the ports filter has made sure
	c := Choice{Node: best.ID, Port: port, Ports: named, Score: scoreOf(best, r, sp), Hold: HoldOf(best.ID, r.Group, r.Plan.Resources, port, named)}
	m.Charge(c.Hold)
	return c, nil
}

// best is the best of the nodes that fit, nil when none does.
func (m *Model) best(r *Request, sp spread) *Node {
	switch {
	case r.Pinned != "":
		if n, ok := m.nodes[r.Pinned]; ok && excludedBy(n, r) == nil {
			return n
		}
		return nil
	case r.Plan.Where.Spread == "":
		return m.class(r).best()
	}
	// One placement changes the score of every node under the same label, so
	// there is no ranking to keep.
	var best ranked
	for _, n := range m.joined {
		if excludedBy(n, r) != nil {
			continue
		}
		if c := rankedOf(n, r, sp); best.node == nil || c.above(best) {
			best = c
		}
	}
	return best.node
}

// explain says of every node why it does not fit.
func (m *Model) explain(r *Request) *Unfit {
	losses := newLosses()
	for _, n := range m.joined {
		if f := excludedBy(n, r); f != nil {
			losses.add(f, n, r)
		}
	}
	return losses.explain(len(m.joined), r)
}

// HoldOf is what a placement occupies.
func HoldOf(n fleet.NodeID, g fleet.GroupName, res fleet.Resources, port int, named map[string]int) Hold {
	h := Hold{Node: n, Group: g, Resources: res, Ports: []int{port}}
	for _, p := range named {
		h.Ports = append(h.Ports, p)
	}
	return h
}
