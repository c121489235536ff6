package place

import "github.com/orreryhq/orrery/libs/fleet"

// Request is one instance to be placed.
type Request struct {
	ID    fleet.InstanceID
	Group fleet.GroupName
	Plan  *fleet.Plan
	// Class names requests of one group and plan: nodes are judged once for all of
	// them. The plan's digest serves. Empty: judged alone.
	Class string
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
	best, ok := m.best(r)
	if !ok {
		return Choice{}, m.explain(r)
	}
	preferred := 0
	if r.PreferredNode == best.node.ID {
		preferred = r.PreferredPort
	}
	port, extra, _ := best.node.choosePorts(r, preferred) // the ports filter has made sure
	var named map[string]int
	for i, p := range extra {
		if named == nil {
			named = make(map[string]int, len(extra))
		}
		named[r.Plan.AdditionalPorts[i].Name] = p
	}
	c := Choice{
		Node: best.node.ID, Port: port, Ports: named, Score: best.score,
		Hold: HoldOf(best.node.ID, r.Group, r.Plan.Resources, port, named),
	}
	m.Charge(c.Hold)
	return c, nil
}

// best is the best of the nodes that fit.
func (m *Model) best(r *Request) (best ranked, ok bool) {
	switch {
	case r.Pinned != "":
		n, known := m.nodes[r.Pinned]
		if !known || !n.joined || excludedBy(n, r) != nil {
			return ranked{}, false
		}
		return rankedOf(n, r, bucketsOf(r, m.joined)), true
	case r.Class != "" && r.Plan.Where.Spread == "": // a spread changes many nodes' scores at once
		return m.class(r).best()
	}
	b := bucketsOf(r, m.joined)
	for _, n := range m.joined {
		if excludedBy(n, r) != nil {
			continue
		}
		if c := rankedOf(n, r, b); !ok || c.above(best) {
			best, ok = c, true
		}
	}
	return best, ok
}

// explain asks every node again why it does not fit.
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
	h := Hold{Node: n, Group: g, Resources: res, Ports: make([]int, 1, 1+len(named))}
	h.Ports[0] = port
	for _, p := range named {
		h.Ports = append(h.Ports, p)
	}
	return h
}
