package place

import (
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Request asks to place one instance.
type Request struct {
	ID    fleet.InstanceID
	Group fleet.GroupName
	// Plan must not change after the first request with it, because its address identifies
	// it.
	Plan *fleet.Plan
	// TemplateMiB is the disk space that the plan's templates need; 0 when unknown.
	TemplateMiB int
	// Pinned is the only allowed node, because it has the instance's data. Empty allows
	// all.
	Pinned fleet.NodeID
	// Leaves is the node that the instance moves away from. Empty means that it does not move.
	Leaves fleet.NodeID
	// Waits, if not nil, says why the instance must wait regardless of the nodes.
	Waits *Unfit
	// PreferredPort is used again if it is free and PreferredNode is chosen.
	PreferredPort int
	PreferredNode fleet.NodeID
	// Own is what the instance itself holds already while it is asleep, or nil. Its request may use
	// that. The model stays charged with it.
	Own *Hold
}

// Choice says where an instance goes. The model is already charged with Hold.
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
	// Lost counts the nodes that each filter excluded, most first. A node counts only for
	// the first filter that excludes it.
	Lost  []fleet.FilterLoss
	Nodes int
}

// Place chooses a node and ports for a request and charges the model, or returns why it
// cannot.
func (m *Model) Place(r *Request) (Choice, *Unfit) {
	if r.Waits != nil {
		return Choice{}, r.Waits
	}
	c := m.ask(r)
	n := m.best(c)
	if n == nil {
		return Choice{}, m.explain(&c.question)
	}
	preferred := r.PreferredPort
	if r.PreferredNode != n.ID {
		preferred = 0
	}
	var buf [8]int
	ports, _ := n.choosePorts(&c.question, preferred, buf[:0]) // cannot fail: the ports filter has checked it
	out := Choice{
		Node: n.ID, Port: ports[0], Ports: nameOf(c.named, ports[1:]), Score: c.score(n),
		Hold: Hold{Node: n.ID, Group: r.Group, Resources: r.Plan.Resources, Ports: slices.Clone(ports), Alone: r.Plan.Where.Alone},
	}
	m.Charge(out.Hold)
	return out, nil
}

// best returns the best node that fits, or nil when none does.
func (m *Model) best(c *class) *Node {
	switch {
	case c.problem != "":
		return nil
	case c.Pinned != "":
		if n, ok := m.nodes[c.Pinned]; ok && c.excludedBy(n) == nil {
			return n
		}
		return nil
	}
	return c.ranking.best()
}

// explain collects from every node why it does not fit.
func (m *Model) explain(q *question) *Unfit {
	if q.problem != "" {
		return &Unfit{Reason: fleet.ReasonBadConstraint, Message: q.problem + "; correct the group", Nodes: len(m.joined)}
	}
	losses := newLosses()
	for _, n := range m.joined {
		if f := q.excludedBy(n); f != nil {
			losses.add(f, n, q)
		}
	}
	return losses.explain(len(m.joined), q)
}

// nameOf maps the names of the additional ports to their numbers. It returns nil without
// additional ports.
func nameOf(named []fleet.NamedPort, ports []int) map[string]int {
	if len(named) == 0 {
		return nil
	}
	out := make(map[string]int, len(named))
	for i, np := range named {
		out[np.Name] = ports[i]
	}
	return out
}

// HoldOf returns what a placement occupies.
func HoldOf(n fleet.NodeID, g fleet.GroupName, res fleet.Resources, port int, named map[string]int) Hold {
	h := Hold{Node: n, Group: g, Resources: res, Ports: []int{port}}
	for _, p := range named {
		h.Ports = append(h.Ports, p)
	}
	return h
}
