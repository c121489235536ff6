package cluster

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// JoinToken lets one host join as one new node. Only its hash is stored. A node has at most one.
// The gateway writes it.
type JoinToken struct {
	record.Rev
	ID   string       `json:"id"`
	Node fleet.NodeID `json:"node"`
	// Hash is the SHA-256 of the token, in hex.
	Hash      string    `json:"hash"`
	By        string    `json:"by"`
	CreatedAt time.Time `json:"createdAt"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// Expired reports whether the token is no longer valid.
func (t *JoinToken) Expired(now time.Time) bool { return !t.ExpiresAt.After(now) }
