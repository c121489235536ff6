package place

import (
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Explanation is all that placement would say of a request now. Making it charges
// nothing.
type Explanation struct {
	// Nodes is how many nodes were looked at.
	Nodes int
	// Lost counts the nodes each filter excluded, as in Unfit.
	Lost []fleet.FilterLoss
	// Unfit is why no node can take it; nil when one can.
	Unfit *Unfit
	// Best are the nodes that can, the one that would be chosen first.
	Best []Candidate
	// Here is the node that was asked about; nil when it has not joined.
	Here *Candidate
}

// Candidate is a node in the eyes of a request.
type Candidate struct {
	Node fleet.NodeID
	// Rank is its place among the nodes that fit, from 1; 0 when it does not fit.
	Rank int
	// Score is what it was ranked by; zero when it does not fit.
	Score Score
	// Filter is the first filter that excludes it, Fix what would change that. Both
	// are empty when it fits.
	Filter, Fix string
}

// Explain looks at every node for a request. It keeps the first few that fit, and
// what is to be said of the node here; an empty id asks about none.
func (m *Model) Explain(r *Request, keep int, here fleet.NodeID) Explanation {
	out := Explanation{Nodes: len(m.joined)}
	if r.Waits != nil {
		out.Unfit = r.Waits
		return out
	}
	c := m.ask(r)
	if c.problem != "" {
		out.Unfit = m.explain(&c.question)
		return out
	}
	lost := newLosses()
	var fits []ranked
	for _, n := range m.joined {
		f := c.excludedBy(n)
		if f == nil {
			fits = append(fits, c.rank(n))
			continue
		}
		lost.add(f, n, &c.question)
		if n.ID == here {
			out.Here = &Candidate{Node: here, Filter: f.Name, Fix: f.fix(n, &c.question)}
		}
	}
	verdict := lost.explain(len(m.joined), &c.question)
	out.Lost = verdict.Lost
	if len(fits) == 0 {
		out.Unfit = verdict
		return out
	}
	slices.SortFunc(fits, func(a, b ranked) int {
		if a.above(&b) {
			return -1
		}
		return 1
	})
	for i, f := range fits {
		if i >= keep && f.node.ID != here {
			continue
		}
		found := Candidate{Node: f.node.ID, Rank: i + 1, Score: c.score(f.node)}
		if i < keep {
			out.Best = append(out.Best, found)
		}
		if f.node.ID == here {
			out.Here = &found
		}
	}
	return out
}

// rank is what a node that fits is compared by, the spread included.
func (q *question) rank(n *Node) ranked {
	s := q.score(n)
	return ranked{node: n, total: s.total(), free: n.Free().MemoryMiB, tie: tieBreak(q.Group, n)}
}
