package place

import (
	"fmt"
	"strings"
)

// labelFilter wants all of the group's affinity labels and none of its
// anti-affinity labels; each is "key" or "key=value".
var labelFilter = Filter{
	Name: "labels",
	Fits: func(n *Node, r *Request) bool { return unmet(n, r) == "" },
	Fix:  func(n *Node, r *Request) string { return fmt.Sprintf("on %s %s", n.ID, unmet(n, r)) },
}

// unmet is what a node's labels lack, "" when nothing.
func unmet(n *Node, r *Request) string {
	for _, want := range r.Plan.Where.Affinity {
		if !labelled(n, want) {
			return "set the label " + want
		}
	}
	for _, not := range r.Plan.Where.AntiAffinity {
		if labelled(n, not) {
			return "remove the label " + not
		}
	}
	return ""
}

func labelled(n *Node, label string) bool {
	key, value, exact := strings.Cut(label, "=")
	have, ok := n.Labels[key]
	return ok && (!exact || have == value)
}
