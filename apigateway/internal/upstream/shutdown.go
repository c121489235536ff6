package upstream

import (
	"context"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// Shutdown has a node's agent stop its instances and end, and does not wait for that. Errors
// as of Cache.
func (a *Agents) Shutdown(ctx context.Context, id fleet.NodeID, reason string) error {
	node, err := a.connected(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = through(a.breakers, node.AgentURL, "the agent of node "+string(node.ID), func() (struct{}, error) {
		return struct{}{}, a.dial(node.AgentURL).Shutdown(ctx, reason)
	})
	return err
}

// Shutdown asks for the agent's end.
func (a nodeAgent) Shutdown(ctx context.Context, reason string) error {
	return a.client.Shutdown(ctx, client.Shutdown{Reason: reason})
}
