package fleet

import "time"

// Operation remembers that a request was carried out, so that it is not carried out again
// when it is sent again because its answer was lost. Created by the gateway in the
// transaction of the change, on a lease, and replaced once with the answer.
type Operation struct {
	Rev
	// ID tells the request from all others, and Request its body from another under the same
	// ID; both are hashes.
	ID      string `json:"id"`
	Request string `json:"request"`
	// Action, ResourceType and ResourceID are as in the audit; empty for what is in none.
	Action       string    `json:"action,omitempty"`
	ResourceType string    `json:"resourceType,omitempty"`
	ResourceID   string    `json:"resourceId,omitempty"`
	At           time.Time `json:"at"`
	// Answer is what the request was answered with, sealed; nil where that is not known yet,
	// was too large, or is told once only.
	Answer []byte `json:"answer,omitempty"`
}
