// Package groupops writes, scales and deletes groups, and checks what their specs refer to.
package groupops

import (
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/seal"
)

// Groups changes groups. It is safe for concurrent use.
type Groups struct {
	*txn.Committer
	seal seal.Box
}

// New returns the operations on groups.
func New(c *txn.Committer, box seal.Box) *Groups {
	return &Groups{Committer: c, seal: box}
}
