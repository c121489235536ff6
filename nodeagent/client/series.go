package client

import (
	"context"
	"net/http"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/series"
)

// NodeSeries reads the node's recent samples: cpuUsage (0 to 1), usedMemoryMb, instanceCount.
func (c *Client) NodeSeries(ctx context.Context, w series.Window) (series.Figures, error) {
	var f series.Figures
	err := c.do(ctx, http.MethodGet, "/v1/series?"+w.Query().Encode(), nil, &f)
	return f, errs.Wrap("nodeagent.NodeSeries", err)
}

// InstanceSeries are the names of an instance's sampled figures: its own metrics, its resource
// usage (usedCpu in hundredths of a core), and its uptime.
func InstanceSeries() []string {
	return []string{"tps1m", "msptAvg", "heapUsedMb", "playerCount", "usedMemoryMb", "usedCpu", "usedDiskMb", "uptimeMs"}
}

// Series reads an instance's recent samples; see InstanceSeries. NotFound if there are none.
func (c *Client) Series(ctx context.Context, id fleet.InstanceID, w series.Window) (series.Figures, error) {
	var f series.Figures
	err := c.call(ctx, http.MethodGet, id, "/series?"+w.Query().Encode(), nil, &f)
	return f, errs.Wrap("nodeagent.Series", err)
}
