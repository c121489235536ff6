package cluster

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// DeletedNode remembers that an operator deleted a node. The enforcer writes it when it removes
// the node's records. A returning agent sees by it that its instances have no records because they
// were given up, not because the store lost data.
type DeletedNode struct {
	record.Rev
	Node fleet.NodeID `json:"node"`
	// Record is the revision of the removed node record.
	Record int64     `json:"record"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}

// DeletedNodeFor is how long a DeletedNode is kept.
const DeletedNodeFor = 30 * 24 * time.Hour
