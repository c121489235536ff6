package place

import (
	"fmt"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
)

// labelFilter wants all of the group's affinity expressions and none of its
// anti-affinity expressions to match the node's labels.
var labelFilter = Filter{
	Name: "labels",
	Fits: func(n *Node, q *question) bool { return unmet(n, q) == 0 },
	Fix: func(n *Node, q *question) string {
		for _, want := range q.affinity {
			if !want.Matches(n.Labels) {
				return fmt.Sprintf("on %s %s", n.ID, toSatisfy(want, n.Labels))
			}
		}
		for _, not := range q.antiAffinity {
			if not.Matches(n.Labels) {
				not.Op = opposite[not.Op]
				return fmt.Sprintf("on %s %s", n.ID, toSatisfy(not, n.Labels))
			}
		}
		return ""
	},
	Near: unmet,
}

// unmet is how many of the label expressions are not as they should be.
func unmet(n *Node, q *question) (count int) {
	for i := range q.affinity {
		if !q.affinity[i].Matches(n.Labels) {
			count++
		}
	}
	for i := range q.antiAffinity {
		if q.antiAffinity[i].Matches(n.Labels) {
			count++
		}
	}
	return count
}

// toSatisfy is what to do to labels that do not satisfy an expression.
func toSatisfy(e fleet.LabelExpr, labels map[string]string) string {
	switch e.Op {
	case fleet.LabelExists:
		return "set the label " + e.Key
	case fleet.LabelEqual:
		return "set the label " + e.Key + "=" + e.Values[0]
	case fleet.LabelIn:
		return "set the label " + e.Key + " to one of " + strings.Join(e.Values, ", ")
	case fleet.LabelAbsent:
		return "remove the label " + e.Key
	case fleet.LabelNotEqual, fleet.LabelNotIn:
	}
	return "remove the label " + e.Key + "=" + labels[e.Key]
}

// opposite turns an expression into the one that matches when it does not.
var opposite = map[fleet.LabelOp]fleet.LabelOp{
	fleet.LabelExists: fleet.LabelAbsent, fleet.LabelAbsent: fleet.LabelExists,
	fleet.LabelEqual: fleet.LabelNotEqual, fleet.LabelNotEqual: fleet.LabelEqual,
	fleet.LabelIn: fleet.LabelNotIn, fleet.LabelNotIn: fleet.LabelIn,
}
