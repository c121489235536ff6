// Package system serves the gateway and the cluster: health, settings, members, secrets, notices,
// metrics and diagnostics.
package system

import (
	"context"
	"slices"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/api/instances"
	"github.com/orreryhq/orrery/apigateway/internal/api/nodes"
	"github.com/orreryhq/orrery/apigateway/internal/background/notices"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/server/settings"
	"github.com/orreryhq/orrery/apigateway/internal/stream/logs"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/series"
)

// Config holds what the handlers need.
type Config struct {
	Operations *ops.Operations
	Schedulers *upstream.Schedulers
	Enforcers  *upstream.Enforcers
	Logs       *logs.Logs
	Instances  *instances.API
	Nodes      *nodes.API
	// Settings are the cluster settings in force.
	Settings *settings.Live
	// Meta identifies the cluster.
	Meta cluster.Meta
	// Past holds the figures of the fleet over time; see NewPast.
	Past *series.Ring
	// Ready returns what the gateway still waits for before it can serve. It is empty when the
	// gateway is ready.
	Ready func(ctx context.Context) (waiting []string)
	// ClockOffsets returns how far the clocks of nodes are ahead of this gateway's, as far as it is known.
	ClockOffsets func() map[fleet.NodeID]time.Duration
	// End asks this replica to shut down.
	End func()
	// Notices delivers outgoing notices.
	Notices *notices.Runner
	// Replica is the name of this gateway.
	Replica string
	// ClusterName is the display name of the cluster.
	ClusterName string
	// Version is the version of the gateway.
	Version string
	// APIURL is the public URL of the gateway. It is empty if none is configured.
	APIURL string
	// NoShares turns sharing off.
	NoShares bool
	// InsecureHTTP says that other hosts reach the API without TLS.
	InsecureHTTP bool
}

// API holds the handlers.
type API struct{ cfg Config }

// New returns the handlers.
func New(cfg Config) *API { return &API{cfg: cfg} }

// Routes returns the routes of the package.
func (a *API) Routes() []server.Route {
	return slices.Concat(a.systemRoutes(), a.timeseriesRoutes(), a.clusterRoutes(), a.configRoutes(), a.maintenanceRoutes(), a.diagnosticRoutes(), a.problemRoutes(), a.secretRoutes(), a.sealingRoutes(), a.noticeRoutes())
}
