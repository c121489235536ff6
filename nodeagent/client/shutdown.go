package client

import (
	"context"
	"net/http"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
)

// Shutdown asks for the agent's end.
type Shutdown struct {
	// Node is whose agent is to end: its address may have become another's.
	Node fleet.NodeID `json:"node"`
	// Reason is for its log, at most 200 characters.
	Reason string `json:"reason,omitempty"`
}

// Shutdown has the agent stop its instances, each by its own policy, and end. It is answered
// before that is done; asked again, it changes nothing. Conflict when it is the agent of
// another node.
func (c *Client) Shutdown(ctx context.Context, s Shutdown) error {
	return errs.Wrap("nodeagent.Shutdown", wire.Call(ctx, c.http, wire.Request{
		Method: http.MethodPost, URL: c.base + "/v1/shutdown", Token: c.secret, Body: s,
	}, nil))
}
