package instanceops

import (
	"context"
	"maps"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/series"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// NodeSeries returns the recent figures of a node from its agent. NotFound when the node does not
// exist, Unavailable when it is not connected or its agent does not answer.
func (o *Instances) NodeSeries(ctx context.Context, id fleet.NodeID, w series.Window) (series.Figures, error) {
	if _, ok := o.Snapshot().Nodes.Get(id); !ok {
		return series.Figures{}, errs.New(errs.NotFound, "there is no node %s", txn.Clip(string(id)))
	}
	return o.agents.NodeSeries(ctx, id, w)
}

// Series returns the recent figures of an instance from its node's agent. They are empty without a
// node, or when it did not run there since the agent started. Errors are those of NodeSeries.
func (o *Instances) Series(ctx context.Context, ref string, w series.Window) (series.Figures, error) {
	nothing := series.Empty(o.Now(), w, client.InstanceSeries()...)
	i, err := o.Find(ref)
	if err != nil {
		return series.Figures{}, err
	}
	if i.Node() == "" {
		return nothing, nil
	}
	f, err := o.agents.Series(ctx, i, w)
	if errs.Is(err, errs.NotFound) {
		return nothing, nil
	}
	if err != nil {
		return series.Figures{}, err
	}
	maps.Copy(nothing.Series, f.Series) // an older agent has fewer series
	f.Series = nothing.Series
	return f, nil
}
