package fleet

import "time"

// RevokedNode bars a node from joining until a time. A gateway writes it, and removes it within
// an hour after that time by its own clock. The node's agent does not join while the record
// exists, and the session that it has then goes on until it ends otherwise. While it holds,
// gateways refuse the own tokens of instances there.
type RevokedNode struct {
	Rev
	Node  NodeID    `json:"node"`
	Until time.Time `json:"until"`
	By    string    `json:"by"`
	At    time.Time `json:"at"`
}

// Holds reports whether the node is barred still.
func (r *RevokedNode) Holds(now time.Time) bool { return r.Until.After(now) }
