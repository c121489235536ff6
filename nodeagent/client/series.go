package client

import (
	"context"
	"net/http"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/series"
	"github.com/orreryhq/orrery/libs/wire"
)

// NodeSeries reads how the node did lately: cpuUsage (0 to 1), usedMemoryMb, instanceCount.
func (c *Client) NodeSeries(ctx context.Context, w series.Window) (series.Figures, error) {
	var f series.Figures
	err := wire.Call(ctx, c.http, wire.Request{Method: http.MethodGet, URL: c.base + "/v1/series?" + w.Query().Encode(), Token: c.secret}, &f)
	return f, errs.Wrap("nodeagent.NodeSeries", err)
}

// InstanceSeries are the names of the figures that Series has of an instance: what it says of
// itself, what it uses of its host (usedCpu in hundredths of a core), and how long it has run.
func InstanceSeries() []string {
	return []string{"tps1m", "msptAvg", "heapUsedMb", "playerCount", "usedMemoryMb", "usedCpu", "usedDiskMb", "uptimeMs"}
}

// Series reads how an instance did lately; see InstanceSeries. NotFound when nothing is known of it.
func (c *Client) Series(ctx context.Context, id fleet.InstanceID, w series.Window) (series.Figures, error) {
	var f series.Figures
	err := c.call(ctx, http.MethodGet, id, "/series?"+w.Query().Encode(), nil, &f)
	return f, errs.Wrap("nodeagent.Series", err)
}
