package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Suspect is who is the likely fault of a group's crashes.
type Suspect string

// The suspects. Empty: the crashes do not tell.
const (
	SuspectRevision Suspect = "revision" // the group's own: the same failure on several nodes
	SuspectNode     Suspect = "node"     // one node: different failures, of several groups
)

// Blame is what crashes have in common. The zero Blame says nothing.
type Blame struct {
	Suspect Suspect `json:"suspect,omitempty"`
	// Node is set when the suspect is a node.
	Node NodeID `json:"node,omitempty"`
	// Fingerprint is set when the suspect is a revision.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Because is a sentence without capital and period; empty when nothing is said.
	Because string `json:"because,omitempty"`
}

// blameFrom is how many crashes of a group have to agree.
const blameFrom = 2

// BlameOf compares a group's recent crashes with each other and with those of all
// groups, which may include them. Most of the group's have to agree: on one failure that
// several nodes have seen, which is the revision's; or on one node, on which other
// groups have crashed too, in another way, which is the node's.
func BlameOf(own, all []*Crash) Blame {
	byFailure, byNode := map[string]int{}, map[NodeID]int{}
	for _, c := range own {
		byFailure[c.Fingerprint]++
		byNode[c.Node]++
	}
	failure, same := most(byFailure)
	nodes := map[NodeID]bool{}
	for _, c := range own {
		if c.Fingerprint == failure {
			nodes[c.Node] = true
		}
	}
	if same >= blameFrom && 2*same > len(own) && len(nodes) > 1 {
		return Blame{
			Suspect: SuspectRevision, Fingerprint: failure,
			Because: fmt.Sprintf("%d crashes on %d nodes are the same failure (%s): the group itself is the likely fault", same, len(nodes), causeOf(own, failure)),
		}
	}
	node, there := most(byNode)
	if there < blameFrom || 2*there <= len(own) {
		return Blame{}
	}
	groups, failures := map[GroupName]bool{}, map[string]bool{}
	for _, c := range all {
		if c.Node == node {
			groups[c.Group], failures[c.Fingerprint] = true, true
		}
	}
	if len(groups) < 2 || len(failures) < 2 {
		return Blame{}
	}
	return Blame{
		Suspect: SuspectNode, Node: node,
		Because: fmt.Sprintf("%d groups crashed on node %s, with %d different failures: the node is the likely fault", len(groups), node, len(failures)),
	}
}

// most is the key with the highest count; of several the first in order.
func most[K cmp.Ordered](counts map[K]int) (key K, n int) {
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		if counts[k] > n {
			key, n = k, counts[k]
		}
	}
	return key, n
}

// causeOf words a failure.
func causeOf(crashes []*Crash, fingerprint string) string {
	for _, c := range crashes {
		if c.Fingerprint == fingerprint {
			return cmp.Or(c.Cause, string(c.Category))
		}
	}
	return ""
}
