package cluster

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// RevokedNode bars a node from joining until a time. A gateway writes it, and removes it within an
// hour after that time. The node's agent cannot join while the record exists, but a session it
// already has continues. While the revocation holds, gateways refuse the tokens of instances on
// the node.
type RevokedNode struct {
	record.Rev
	Node  fleet.NodeID `json:"node"`
	Until time.Time    `json:"until"`
	By    string       `json:"by"`
	At    time.Time    `json:"at"`
}

// Holds reports whether the node is still barred.
func (r *RevokedNode) Holds(now time.Time) bool { return r.Until.After(now) }
