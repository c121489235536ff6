package client

import (
	"context"
	"net/http"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Shutdown requests the end of an agent.
type Shutdown struct {
	// Node is the agent's node, in case another agent has its address now.
	Node fleet.NodeID `json:"node"`
	// Reason is logged, at most 200 characters.
	Reason string `json:"reason,omitempty"`
}

// Shutdown makes the agent stop its instances, each by its own policy, and end. It returns
// before that is done. Repeated calls have no effect. Conflict if it is the agent of another
// node.
func (c *Client) Shutdown(ctx context.Context, s Shutdown) error {
	return errs.Wrap("nodeagent.Shutdown", c.do(ctx, http.MethodPost, "/v1/shutdown", s, nil))
}
