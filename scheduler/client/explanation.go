package client

import (
	"github.com/orreryhq/orrery/libs/fleet"
)

// Explanation is how placement judges an instance. For a waiting instance, it is the
// decision that would be made now. For a placed one, it is the decision that would be made
// if the instance were not there.
type Explanation struct {
	// Revision is the store revision that the answer is based on.
	Revision   int64            `json:"revision"`
	Instance   fleet.InstanceID `json:"instance"`
	Generation int64            `json:"generation"`
	// Nodes is the number of joined nodes; Lost counts how many of them each filter
	// excluded.
	Nodes int                `json:"nodes"`
	Lost  []fleet.FilterLoss `json:"lost,omitempty"`
	// Unfit says why no node fits; nil when a node does.
	Unfit *Unfit `json:"unfit,omitempty"`
	// Best are the nodes that fit, best first, at most MaxBest.
	Best []Candidate `json:"best,omitempty"`
	// Here is the node that it is placed on; nil when it is not placed.
	Here *Candidate `json:"here,omitempty"`
}

// MaxBest is the maximum length of Explanation.Best.
const MaxBest = 5

// Unfit says why no node can take an instance.
type Unfit struct {
	Reason  fleet.Reason `json:"reason"`
	Message string       `json:"message"`
}

// Candidate is the verdict on one node.
type Candidate struct {
	Node fleet.NodeID `json:"node"`
	// Rank is the node's position among the nodes that fit, from 1; 0 when it does not fit.
	Rank int `json:"rank,omitempty"`
	// Score has the rounded parts of the score and their total; empty when the node does
	// not fit.
	Score map[string]float64 `json:"score,omitempty"`
	// Filter names the first filter that excludes the node, and Fix says what would change
	// that.
	Filter string `json:"filter,omitempty"`
	Fix    string `json:"fix,omitempty"`
}
