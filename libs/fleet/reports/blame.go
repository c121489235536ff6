package reports

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
)

// The suspects. The empty value means that the crashes do not show one.
const (
	SuspectRevision crashloop.Suspect = "revision" // the group's spec: the same failure on several nodes
	SuspectNode     crashloop.Suspect = "node"     // a node: different failures of several groups
)

// blameFrom is how many crashes of a group must agree.
const blameFrom = 2

// BlameOf finds the likely cause of a group's recent crashes (own). all are the recent crashes of
// all groups and may include own. A majority of own must agree: the same failure on several nodes
// blames the revision. The same node blames that node, if other groups crashed there too, with
// other failures.
func BlameOf(own, all []*Crash) crashloop.Blame {
	byFailure, byNode := map[string]int{}, map[fleet.NodeID]int{}
	for _, c := range own {
		byFailure[c.Fingerprint]++
		byNode[c.Node]++
	}
	failure, same := most(byFailure)
	nodes := map[fleet.NodeID]bool{}
	for _, c := range own {
		if c.Fingerprint == failure {
			nodes[c.Node] = true
		}
	}
	if same >= blameFrom && 2*same > len(own) && len(nodes) > 1 {
		return crashloop.Blame{
			Suspect: SuspectRevision, Fingerprint: failure,
			Because: fmt.Sprintf("%d crashes on %d nodes are the same failure (%s): the group itself is the likely fault", same, len(nodes), causeOf(own, failure)),
		}
	}
	node, there := most(byNode)
	if there < blameFrom || 2*there <= len(own) {
		return crashloop.Blame{}
	}
	groups, failures := map[fleet.GroupName]bool{}, map[string]bool{}
	for _, c := range all {
		if c.Node == node {
			groups[c.Group], failures[c.Fingerprint] = true, true
		}
	}
	if len(groups) < 2 || len(failures) < 2 {
		return crashloop.Blame{}
	}
	return crashloop.Blame{
		Suspect: SuspectNode, Node: node,
		Because: fmt.Sprintf("%d groups crashed on node %s, with %d different failures: the node is the likely fault", len(groups), node, len(failures)),
	}
}

// most returns the key with the highest count. On a tie it returns the smallest key.
func most[K cmp.Ordered](counts map[K]int) (key K, n int) {
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		if counts[k] > n {
			key, n = k, counts[k]
		}
	}
	return key, n
}

// causeOf returns the text for a failure.
func causeOf(crashes []*Crash, fingerprint string) string {
	for _, c := range crashes {
		if c.Fingerprint == fingerprint {
			return cmp.Or(c.Cause, string(c.Category))
		}
	}
	return ""
}
