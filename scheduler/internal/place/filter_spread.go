package place

import "fmt"

// spreadFilter enforces the maximum skew: how many more instances one value of the spread
// label may have than another; see ranking.fewest. It does not apply to an instance whose
// data is on a node.
var spreadFilter = Filter{
	Name: FilterSpread,
	Fits: func(n *Node, q *question) bool {
		return !q.skewed() || q.ranking.admits(q.ranking.valueOf(n))
	},
	Fix: func(n *Node, q *question) string {
		w := q.Plan.Where
		value, ok := n.Labels[w.Spread]
		if !ok {
			return fmt.Sprintf("set the label %s on %s", w.Spread, n.ID)
		}
		return fmt.Sprintf("%s=%s has %d of the group's instances, %s=%s only %d: make room there or raise spreadMaxSkew from %d",
			w.Spread, value, q.ranking.count(n), w.Spread, q.ranking.emptiest(), q.ranking.fewest(), w.MaxSkew)
	},
	Near: func(n *Node, q *question) int {
		if _, ok := n.Labels[q.Plan.Where.Spread]; !ok {
			return 1 << 30
		}
		return q.ranking.count(n)
	},
}

// skewed reports whether a maximum skew applies to the request.
func (q *question) skewed() bool {
	return q.Plan.Where.MaxSkew > 0 && q.Plan.Where.Spread != "" && q.Pinned == ""
}
