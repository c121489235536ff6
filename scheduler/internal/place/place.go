package place

import (
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Request is one instance to be placed.
type Request struct {
	ID    fleet.InstanceID
	Group fleet.GroupName
	// Plan must not change after it was asked for once: its address stands for it.
	Plan *fleet.Plan
	// TemplateMiB is how much disk the plan's templates need; 0 when unknown.
	TemplateMiB int
	// Pinned is the only node allowed, because the instance's data lies there. Empty: any.
	Pinned fleet.NodeID
	// Waits is why it is placed on no node, whatever the nodes are like. Nil for most.
	Waits *Unfit
	// PreferredPort is taken again if it is free, on PreferredNode.
	PreferredPort int
	PreferredNode fleet.NodeID
	// Avoid is a node that is chosen only when no other fits. Empty: none.
	Avoid fleet.NodeID
	// Shuffle other than 0 chooses one of the best few nodes with the same score: the
	// same for the same number. For those that lost a race for the best.
	Shuffle uint64
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
	ports, _ := n.choosePorts(&c.question, preferred, buf[:0]) // the ports filter has made sure
	out := Choice{
		Node: n.ID, Port: ports[0], Ports: nameOf(c.named, ports[1:]), Score: c.score(n),
		Hold: Hold{Node: n.ID, Group: r.Group, Resources: r.Plan.Resources, Ports: slices.Clone(ports), Alone: r.Plan.Where.Alone},
	}
	m.Charge(out.Hold)
	return out, nil
}

// best is the best of the nodes that fit, nil when none does.
func (m *Model) best(c *class) *Node {
	switch {
	case c.problem != "":
		return nil
	case c.Pinned != "":
		if n, ok := m.nodes[c.Pinned]; ok && c.excludedBy(n) == nil {
			return n
		}
		return nil
	case c.Avoid != "" || c.Shuffle != 0:
		return c.ranking.another(c.Request)
	}
	return c.ranking.best()
}

// explain says of every node why it does not fit.
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

// nameOf gives the additional ports their names; nil when there are none.
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

// HoldOf is what a placement occupies.
func HoldOf(n fleet.NodeID, g fleet.GroupName, res fleet.Resources, port int, named map[string]int) Hold {
	h := Hold{Node: n, Group: g, Resources: res, Ports: []int{port}}
	for _, p := range named {
		h.Ports = append(h.Ports, p)
	}
	return h
}
