package place

import (
	"fmt"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet/label"
)

// labelFilter requires the node's labels to match all of the group's affinity expressions
// and none of its anti-affinity expressions.
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

// unmet counts the label expressions that the node violates.
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

// toSatisfy says how to change labels so that they satisfy an expression.
func toSatisfy(e label.LabelExpr, labels map[string]string) string {
	switch e.Op {
	case label.LabelExists:
		return "set the label " + e.Key
	case label.LabelEqual:
		return "set the label " + e.Key + "=" + e.Values[0]
	case label.LabelIn:
		return "set the label " + e.Key + " to one of " + strings.Join(e.Values, ", ")
	case label.LabelAbsent:
		return "remove the label " + e.Key
	case label.LabelNotEqual, label.LabelNotIn:
	}
	return "remove the label " + e.Key + "=" + labels[e.Key]
}

// opposite maps an operator to its negation.
var opposite = map[label.LabelOp]label.LabelOp{
	label.LabelExists: label.LabelAbsent, label.LabelAbsent: label.LabelExists,
	label.LabelEqual: label.LabelNotEqual, label.LabelNotEqual: label.LabelEqual,
	label.LabelIn: label.LabelNotIn, label.LabelNotIn: label.LabelIn,
}
