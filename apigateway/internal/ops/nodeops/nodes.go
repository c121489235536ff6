// Package nodeops cordons, labels, shuts down, revokes and deletes nodes, and issues join tokens.
package nodeops

import (
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
)

// Nodes changes nodes and join tokens. It is safe for concurrent use.
type Nodes struct {
	*txn.Committer
	agents *upstream.Agents
}

// New returns the operations on nodes.
func New(c *txn.Committer, agents *upstream.Agents) *Nodes {
	return &Nodes{Committer: c, agents: agents}
}
