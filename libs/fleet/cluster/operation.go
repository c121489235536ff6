package cluster

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet/record"
)

// Operation remembers that a request was carried out, so that a retry after a lost answer does not
// carry it out again. The gateway creates it with a lease: in the transaction of the change, or,
// if the work does not fit into a transaction, before it starts. It is replaced once with the
// answer, and removed if nothing was done.
type Operation struct {
	record.Rev
	// ID identifies the request, Request its body. Both are hashes. The same ID with another body
	// is a different request.
	ID      string `json:"id"`
	Request string `json:"request"`
	// Action, ResourceType and ResourceID are as in the audit. They are empty for requests that
	// are not audited.
	Action       string    `json:"action,omitempty"`
	ResourceType string    `json:"resourceType,omitempty"`
	ResourceID   string    `json:"resourceId,omitempty"`
	At           time.Time `json:"at"`
	// Stage is empty if the request is complete and its answer may be repeated. Details explains
	// the state of an incomplete one.
	Stage   OperationStage `json:"stage,omitempty"`
	Details string         `json:"details,omitempty"`
	// Answer is the sealed answer to the request. It is nil if the answer is not known yet, was
	// too large, or may be shown only once.
	Answer []byte `json:"answer,omitempty"`
}

// OperationStage says how far an operation got, or why its answer cannot be repeated.
type OperationStage string

// The stages.
const (
	// OperationBegun means that work outside the record's transaction is still in progress.
	OperationBegun OperationStage = "begun"
	// OperationUnknown means that the work ended and its outcome is unknown.
	OperationUnknown OperationStage = "unknown"
	// OperationShown means that it is complete, and its answer contains a secret that is shown
	// only once.
	OperationShown OperationStage = "shown"
)
