// Package instanceops starts, stops and removes instances, issues their credentials, transfers
// players between them, and passes commands and questions to the agents of their nodes.
package instanceops

import (
	"github.com/orreryhq/orrery/apigateway/internal/ops/groupops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
)

// Instances changes instances, and asks the agents of their nodes about them. It is safe for concurrent use.
type Instances struct {
	*txn.Committer
	groups *groupops.Groups
	agents *upstream.Agents
}

// New returns the operations on instances.
func New(c *txn.Committer, groups *groupops.Groups, agents *upstream.Agents) *Instances {
	return &Instances{Committer: c, groups: groups, agents: agents}
}
