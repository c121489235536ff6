package fleet

import "time"

// Operation remembers that a request was carried out, so that it is not carried out again
// when it is sent again because its answer was lost. Created by the gateway in the
// transaction of the change, or before what can be in none is done for it, on a lease, and replaced once with
// the answer; removed when nothing was done after all.
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
	// Stage is how far it came; empty when all was done and its answer may be told again.
	// Details says in words what is known of one that is not done; empty for others.
	Stage   OperationStage `json:"stage,omitempty"`
	Details string         `json:"details,omitempty"`
	// Answer is what the request was answered with, sealed; nil where that is not known yet,
	// was too large, or is told once only.
	Answer []byte `json:"answer,omitempty"`
}

// OperationStage is how far an operation came, or what else keeps its answer from being told.
type OperationStage string

// The stages.
const (
	// OperationBegun is while more is done for it than was in the transaction of its record.
	OperationBegun OperationStage = "begun"
	// OperationUnknown is one that is over without anybody knowing what came of it.
	OperationUnknown OperationStage = "unknown"
	// OperationShown is one that was done, and is answered with a secret that is shown once.
	OperationShown OperationStage = "shown"
)
