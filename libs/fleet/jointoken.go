package fleet

import "time"

// JoinToken lets one host join as one node, which is not there yet; only its hash is kept.
// There is one of a node at most. The gateway writes it.
type JoinToken struct {
	Rev
	ID   string `json:"id"`
	Node NodeID `json:"node"`
	// Hash is the SHA-256 of the token, hex.
	Hash      string    `json:"hash"`
	By        string    `json:"by"`
	CreatedAt time.Time `json:"createdAt"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// Expired reports whether the token is good no more.
func (t *JoinToken) Expired(now time.Time) bool { return !t.ExpiresAt.After(now) }
