package system

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/series"
	"github.com/orreryhq/orrery/libs/store/view"
)

// timeseriesRoutes serve figures over time of the fleet, its nodes and its instances.
func (a *API) timeseriesRoutes() []server.Route {
	instance := a.timeseries(func(ctx context.Context, id string, w series.Window) (series.Figures, error) {
		return a.cfg.Operations.Series(ctx, id, w)
	})
	return []server.Route{
		server.Get("/api/v1/metrics/summary", server.Needs(auth.MetricsView), a.metricsSummary),
		server.Get("/api/v1/overview/timeseries", server.Anyone, a.overviewSeries),
		server.Get("/api/v1/nodes/:id/metrics/timeseries", server.Needs(auth.NodesView), a.timeseries(func(ctx context.Context, id string, w series.Window) (series.Figures, error) {
			return a.cfg.Operations.NodeSeries(ctx, fleet.NodeID(id), w)
		})),
		server.Get("/api/v1/services/:id/metrics/timeseries", server.Needs(auth.InstancesView), instance).In(server.InstanceInPath),
		server.Get("/api/v1/instances/:id/metrics/timeseries", server.Needs(auth.InstancesView), instance).In(server.InstanceInPath),
	}
}

// overviewSeries answers with the figures of the fleet. They are not kept by group.
func (a *API) overviewSeries(c *gin.Context) {
	if server.Sight(c, auth.InstancesView) != nil {
		who, _ := server.Identity(c)
		server.Fail(c, errs.New(errs.Denied, "%s: these figures are about the whole fleet", who.Lacks(auth.InstancesView)))
		return
	}
	a.timeseries(func(_ context.Context, _ string, w series.Window) (series.Figures, error) {
		return a.cfg.Past.Read(a.cfg.Operations.Now(), w), nil
	})(c)
}

// timeseries answers with the figures of the last ?window, in ?buckets.
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

// NewPast returns a buffer for the figures of the fleet over time. Sample returns what to add.
func NewPast() *series.Ring { return series.New("players", "instances", "onlineNodes") }

// Sample returns the figures of a snapshot.
func Sample(s *view.Snapshot) []float64 {
	f := figuresOf(s, nil)
	return []float64{float64(f.PlayerCount), float64(f.InstanceCount), float64(f.NodeCount)}
}

// metricsSummary counts the objects of the fleet and the stored crashes.
func (a *API) metricsSummary(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	f := figuresOf(s, nil)
	c.JSON(http.StatusOK, struct {
		Nodes     int `json:"nodes"` // connected nodes
		Instances int `json:"instances"`
		Players   int `json:"players"`
		Groups    int `json:"groups"`
		Crashes   int `json:"crashes"` // stored crashes
	}{f.NodeCount, f.InstanceCount, f.PlayerCount, f.GroupCount, s.Crashes.Len()})
}
