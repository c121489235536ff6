package upstream

import (
	"context"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// Shutdown makes a node's agent stop its instances and exit. It does not wait. Errors are those of Cache, and
// Conflict if another node's agent has its address.
func (a *Agents) Shutdown(ctx context.Context, id fleet.NodeID, reason string) error {
	node, err := a.connected(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = through(a.breakers, node.AgentURL, "the agent of node "+string(node.ID), func() (struct{}, error) {
		return struct{}{}, a.dial(node.AgentURL).Shutdown(ctx, id, reason)
	})
	return err
}

// Shutdown makes the agent exit if it is this node's.
func (a nodeAgent) Shutdown(ctx context.Context, id fleet.NodeID, reason string) error {
	return a.client.Shutdown(ctx, client.Shutdown{Node: id, Reason: reason})
}
