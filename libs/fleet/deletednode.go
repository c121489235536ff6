package fleet

import "time"

// DeletedNode remembers for a while that an operator deleted a node. The enforcer writes it
// when it removes the node's records. An agent that returns recognises by it that the store
// has lost nothing: its instances have no records because they were given up.
type DeletedNode struct {
	Rev
	Node NodeID `json:"node"`
	// Record is the revision of the node's record that was removed.
	Record int64     `json:"record"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}

// DeletedNodeFor is how long the deletion of a node is remembered.
const DeletedNodeFor = 30 * 24 * time.Hour
