package place

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
)

// maxFix bounds the fix text of one filter, in bytes. Node lists and labels may be long,
// and the text is stored for each waiting instance.
const maxFix = 300

// fix returns what would make a node fit, cut to maxFix bytes.
func (f *Filter) fix(n *Node, q *question) string {
	text := f.Fix(n, q)
	if len(text) > maxFix {
		text = strings.ToValidUTF8(text[:maxFix], "") + "…"
	}
	return text
}

// losses counts the excluded nodes per filter and remembers the nearest node of each
// filter.
type losses struct{ by map[*Filter]*loss }

type loss struct {
	nodes   int
	nearest *Node
	missing int
}

func newLosses() *losses { return &losses{by: map[*Filter]*loss{}} }

func (l *losses) add(f *Filter, n *Node, q *question) {
	missing := 0
	if f.Near != nil {
		missing = f.Near(n, q)
	}
	have, ok := l.by[f]
	if !ok {
		l.by[f] = &loss{nodes: 1, nearest: n, missing: missing}
		return
	}
	have.nodes++
	if missing < have.missing {
		have.nearest, have.missing = n, missing
	}
}

// onlyPolicy reports whether a policy excludes a node, and no node is excluded because of the instances on
// it. Then the end of another instance would not help.
func (l *losses) onlyPolicy() (only bool) {
	for f := range l.by {
		if f.Name != pinFilter.Name && !slices.ContainsFunc(standing[:], func(s Filter) bool { return s.Name == f.Name }) {
			return false
		}
		only = only || f.Name == policyFilter.Name
	}
	return only
}

// explain turns the losses into an Unfit.
func (l *losses) explain(nodes int, q *question) *Unfit {
	if nodes == 0 {
		return &Unfit{Reason: fleet.ReasonNoNodes, Message: "no node has joined yet: start an agent"}
	}
	u := &Unfit{Reason: fleet.ReasonNoNodeFits, Nodes: nodes}
	switch {
	case l.onlyPolicy():
		u.Reason = fleet.ReasonNodePolicy
	case q.Pinned != "":
		u.Reason = fleet.ReasonPinnedWaiting
	}
	for f, lost := range l.by {
		u.Lost = append(u.Lost, fleet.FilterLoss{Filter: f.Name, Nodes: lost.nodes, Fix: f.fix(lost.nearest, q)})
	}
	slices.SortFunc(u.Lost, func(a, b fleet.FilterLoss) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Filter, b.Filter))
	})
	var parts []string
	for _, f := range u.Lost {
		parts = append(parts, fmt.Sprintf("%d by %s (%s)", f.Nodes, f.Filter, f.Fix))
	}
	u.Message = fmt.Sprintf("0 of %d nodes can take it: %s", nodes, strings.Join(parts, "; "))
	return u
}
