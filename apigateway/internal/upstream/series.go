package upstream

import (
	"context"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/series"
)

// NodeSeries returns a node's recent metrics over time. Errors are those of Cache.
func (a *Agents) NodeSeries(ctx context.Context, id fleet.NodeID, w series.Window) (series.Figures, error) {
	node, err := a.connected(id)
	if err != nil {
		return series.Figures{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return through(a.breakers, node.AgentURL, "the agent of node "+string(node.ID), func() (series.Figures, error) {
		return a.dial(node.AgentURL).NodeSeries(ctx, w)
	})
}

// Series returns an instance's recent metrics over time. It returns the errors of call, and NotFound if
// the agent has no metrics of it.
func (a *Agents) Series(ctx context.Context, i *fleet.Instance, w series.Window) (series.Figures, error) {
	return call(ctx, a, a.breakers, i, func(ctx context.Context, agent Agent) (series.Figures, error) {
		return agent.Series(ctx, i.Intent.ID, w)
	})
}

// NodeSeries returns the node's metrics over time.
func (a nodeAgent) NodeSeries(ctx context.Context, w series.Window) (series.Figures, error) {
	return a.client.NodeSeries(ctx, w)
}

// Series returns an instance's metrics over time.
func (a nodeAgent) Series(ctx context.Context, id fleet.InstanceID, w series.Window) (series.Figures, error) {
	return a.client.Series(ctx, id, w)
}
