package cluster

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// RevokedNode bars a node until a time. A gateway writes it, and removes it within an hour after that
// time. While the record exists, the node's agent cannot join, and services refuse its certificates. An
// agent that uses etcd without a gateway keeps the session that it has. While the revocation holds,
// gateways refuse the tokens of instances on the node.
type RevokedNode struct {
	record.Rev
	Node  fleet.NodeID `json:"node"`
	Until time.Time    `json:"until"`
	By    string       `json:"by"`
	At    time.Time    `json:"at"`
}

// Holds reports whether the node is still barred.
func (r *RevokedNode) Holds(now time.Time) bool { return r.Until.After(now) }
