// Package auditops reads the audit trail: changes of the fleet, the history of an object, and how
// an object was at a time in the past.
package auditops

import (
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
)

// Trail reads the audit trail: the changes of the fleet and the past states of objects. It is safe
// for concurrent use.
type Trail struct {
	*txn.Committer
}

// New returns the operations on the audit trail.
func New(c *txn.Committer) *Trail {
	return &Trail{Committer: c}
}
