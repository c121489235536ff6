package operate

import (
	"context"
	"maps"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/series"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// NodeSeries is how a node did lately, as its agent has seen it. NotFound when there is no
// such node, Unavailable when it is not connected or its agent does not answer.
func (o *Operations) NodeSeries(ctx context.Context, id fleet.NodeID, w series.Window) (series.Figures, error) {
	if _, ok := o.Snapshot().Nodes.Get(id); !ok {
		return series.Figures{}, errs.New(errs.NotFound, "there is no node %s", clip(string(id)))
	}
	return o.cfg.Agents.NodeSeries(ctx, id, w)
}

// Series is how an instance did lately, as the agent of its node has seen it; nothing where
// it has no node yet, or did not run there since that agent began. Errors as of NodeSeries.
func (o *Operations) Series(ctx context.Context, ref string, w series.Window) (series.Figures, error) {
	nothing := series.Empty(o.now(), w, client.InstanceSeries()...)
	i, err := o.Find(ref)
	if err != nil {
		return series.Figures{}, err
	}
	if i.Node() == "" {
		return nothing, nil
	}
	f, err := o.cfg.Agents.Series(ctx, i, w)
	if errs.Is(err, errs.NotFound) {
		return nothing, nil
	}
	if err != nil {
		return series.Figures{}, err
	}
	maps.Copy(nothing.Series, f.Series) // an older agent keeps fewer
	f.Series = nothing.Series
	return f, nil
}
