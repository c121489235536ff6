package fleet

import "time"

// RevokedNode bars a node from joining until a time. The gateway writes it; the node's agent
// heeds it when it joins, and the session that it has then goes on until it ends otherwise.
// While it holds, gateways refuse the own tokens of instances there.
type RevokedNode struct {
	Rev
	Node  NodeID    `json:"node"`
	Until time.Time `json:"until"`
	By    string    `json:"by"`
	At    time.Time `json:"at"`
}

// Holds reports whether the node is barred still.
func (r *RevokedNode) Holds(now time.Time) bool { return r.Until.After(now) }
