package rest

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/series"
	"github.com/orreryhq/orrery/libs/store/view"
)

// timeseriesRoutes are how the fleet, its nodes and its instances did lately.
func (a *API) timeseriesRoutes() []server.Route {
	instance := a.timeseries(func(ctx context.Context, id string, w series.Window) (series.Figures, error) {
		return a.cfg.Operations.Series(ctx, id, w)
	})
	return []server.Route{
		server.Get("/api/v1/metrics/summary", server.Needs(auth.MetricsView), a.metricsSummary),
		server.Get("/api/v1/overview/timeseries", server.Anyone, a.timeseries(func(_ context.Context, _ string, w series.Window) (series.Figures, error) {
			return a.cfg.Past.Read(a.cfg.Now(), w), nil
		})),
		server.Get("/api/v1/nodes/:id/metrics/timeseries", server.Needs(auth.NodesView), a.timeseries(func(ctx context.Context, id string, w series.Window) (series.Figures, error) {
			return a.cfg.Operations.NodeSeries(ctx, fleet.NodeID(id), w)
		})),
		server.Get("/api/v1/services/:id/metrics/timeseries", server.Needs(auth.InstancesView), instance),
		server.Get("/api/v1/instances/:id/metrics/timeseries", server.Needs(auth.InstancesView), instance),
	}
}

// timeseries answers with a ?window of the past in so many ?buckets.
func (*API) timeseries(read func(ctx context.Context, id string, w series.Window) (series.Figures, error)) gin.HandlerFunc {
	return func(c *gin.Context) {
		w, err := series.ParseWindow(c.Query("window"), c.Query("buckets"))
		if err != nil {
			server.Fail(c, err)
			return
		}
		figures, err := read(c.Request.Context(), c.Param("id"), w)
		if err != nil {
			server.Fail(c, err)
			return
		}
		c.JSON(http.StatusOK, figures)
	}
}

// NewPast keeps how the fleet did; Sample is what it is told.
func NewPast() *series.Ring { return series.New("players", "instances", "onlineNodes") }

// Sample are the figures of a snapshot that NewPast keeps.
func Sample(s *view.Snapshot) []float64 {
	f := figuresOf(s)
	return []float64{float64(f.PlayerCount), float64(f.InstanceCount), float64(f.NodeCount)}
}

// metricsSummary counts what there is, and what has crashed.
func (a *API) metricsSummary(c *gin.Context) {
	s := a.snapshot()
	f := figuresOf(s)
	c.JSON(http.StatusOK, struct {
		Nodes     int `json:"nodes"` // of those that live
		Instances int `json:"instances"`
		Players   int `json:"players"`
		Groups    int `json:"groups"`
		Crashes   int `json:"crashes"` // of those that are kept
	}{f.NodeCount, f.InstanceCount, f.PlayerCount, f.GroupCount, s.Crashes.Len()})
}
