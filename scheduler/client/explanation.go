package client

import "github.com/orreryhq/orrery/libs/fleet"

// Explanation is what placement says of an instance: of one that waits, what it
// would decide now; of one that is placed, what it would decide if the instance were
// not there.
type Explanation struct {
	// Revision is the store's revision the answer was computed from.
	Revision   int64            `json:"revision"`
	Instance   fleet.InstanceID `json:"instance"`
	Generation int64            `json:"generation"`
	// Nodes is how many nodes were looked at, Lost how many of them each filter excluded.
	Nodes int                `json:"nodes"`
	Lost  []fleet.FilterLoss `json:"lost,omitempty"`
	// Unfit is why no node can take it; nil when one can.
	Unfit *Unfit `json:"unfit,omitempty"`
	// Best are the nodes that can, the one that would be chosen first; at most MaxBest.
	Best []Candidate `json:"best,omitempty"`
	// Here is the node it is placed on; nil when it is on none.
	Here *Candidate `json:"here,omitempty"`
}

// MaxBest bounds Explanation.Best.
const MaxBest = 5

// Unfit is why no node can take an instance.
type Unfit struct {
	Reason  fleet.Reason `json:"reason"`
	Message string       `json:"message"`
}

// Candidate is a node in the eyes of one instance.
type Candidate struct {
	Node fleet.NodeID `json:"node"`
	// Rank is its place among the nodes that fit, from 1; 0 when it does not fit.
	Rank int `json:"rank,omitempty"`
	// Score are the parts of its score and their total, rounded; none when it does not fit.
	Score map[string]float64 `json:"score,omitempty"`
	// Filter is the first filter that excludes it, Fix what would change that.
	Filter string `json:"filter,omitempty"`
	Fix    string `json:"fix,omitempty"`
}
