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
	// Again is true if the node may exist.
	Again bool `json:"again,omitempty"`
	// Used is set when a host has joined with the token.
	Used *JoinTokenUse `json:"used,omitempty"`
}

// JoinTokenUse says which host has joined with a token.
type JoinTokenUse struct {
	// Key is the SHA-256 of the public key of the host's first certificate, in hex. The host may repeat the
	// call if it did not receive the answer.
	Key string    `json:"key"`
	At  time.Time `json:"at"`
	IP  string    `json:"ip,omitempty"`
}

// Expired reports whether the token is no longer valid.
func (t *JoinToken) Expired(now time.Time) bool { return !t.ExpiresAt.After(now) }
