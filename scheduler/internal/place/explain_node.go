package place

import (
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Explanation is how placement would answer a request now. Making one charges nothing.
type Explanation struct {
	// Nodes is the number of joined nodes.
	Nodes int
	// Lost counts the nodes that each filter excluded, as in Unfit.
	Lost []fleet.FilterLoss
	// Unfit says why no node fits; nil when a node does.
	Unfit *Unfit
	// Best are the nodes that fit, best first.
	Best []Candidate
	// Here is the node that the caller asked about; nil when it has not joined.
	Here *Candidate
}

// Candidate is the verdict on one node for a request.
type Candidate struct {
	Node fleet.NodeID
	// Rank is the node's position among the nodes that fit, from 1; 0 when it does not fit.
	Rank int
	// Score is the score the node was ranked by; zero when it does not fit.
	Score Score
	// Filter names the first filter that excludes the node, and Fix says what would change
	// that. Both are empty when it fits.
	Filter, Fix string
}

// Explain judges every node for a request. It returns the best keep nodes that fit, and the
// verdict on the node here. An empty here asks about no single node.
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

// rank returns the values by which a fitting node is compared, including the spread.
func (q *question) rank(n *Node) ranked {
	s := q.score(n)
	return ranked{node: n, total: s.total(), free: n.Free().MemoryMiB, tie: tieBreak(q.Group, n)}
}
