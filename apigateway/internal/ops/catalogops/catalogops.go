// Package catalogops edits the catalog of platforms and their versions.
package catalogops

import (
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
)

// Catalog changes the catalog of platforms. It is safe for concurrent use.
type Catalog struct {
	*txn.Committer
}

// New returns the operations on the catalog of platforms.
func New(c *txn.Committer) *Catalog {
	return &Catalog{Committer: c}
}
