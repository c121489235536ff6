// Package templateops records changes of templates, saves instances as templates, and syncs
// templates to the caches of nodes.
package templateops

import (
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
)

// Templates audits changes of templates, and brings templates to nodes. It is safe for concurrent use.
type Templates struct {
	*txn.Committer
	agents *upstream.Agents
}

// New returns the operations on templates.
func New(c *txn.Committer, agents *upstream.Agents) *Templates {
	return &Templates{Committer: c, agents: agents}
}
