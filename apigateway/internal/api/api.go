// Package api serves Orrery's own API under /api/v1. Each resource has a package of its own; this
// one wires them.
//
// The API uses the field names, paths and statuses of PrexorCloud's API where that has them, and
// adds what it lacks.
//
// Invariants:
//
//   - An unknown field is refused by its name. Fields that known clients send and that have no
//     meaning here are accepted and ignored. So are read-only fields, so that a client can send
//     back what it read.
//   - Handlers decide nothing about the fleet: package ops does.
package api

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/accounts"
	"github.com/orreryhq/orrery/apigateway/internal/api/audit"
	"github.com/orreryhq/orrery/apigateway/internal/api/catalog"
	"github.com/orreryhq/orrery/apigateway/internal/api/crashes"
	"github.com/orreryhq/orrery/apigateway/internal/api/groups"
	"github.com/orreryhq/orrery/apigateway/internal/api/instances"
	"github.com/orreryhq/orrery/apigateway/internal/api/nodes"
	"github.com/orreryhq/orrery/apigateway/internal/api/players"
	"github.com/orreryhq/orrery/apigateway/internal/api/shares"
	"github.com/orreryhq/orrery/apigateway/internal/api/sources"
	"github.com/orreryhq/orrery/apigateway/internal/api/system"
	"github.com/orreryhq/orrery/apigateway/internal/api/templates"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/background/cataloghash"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/sourceops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/server/settings"
	"github.com/orreryhq/orrery/apigateway/internal/sharedtext"
	"github.com/orreryhq/orrery/apigateway/internal/stream/logs"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/apigateway/internal/workload/presence"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/series"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Config holds what the API needs. All fields are required unless their comment says otherwise.
type Config struct {
	Store      *store.Client
	View       *view.View
	Auth       *auth.Service
	Operations *ops.Operations
	Sources    *sourceops.Sources
	Templates  *upstream.Templates
	Hasher     *cataloghash.Hasher
	// PinTime bounds how long an answer waits for the first download of a version.
	PinTime    time.Duration
	Schedulers *upstream.Schedulers
	Players    *presence.Table
	// Stale reports whether the reports of a node are overdue.
	Stale func(fleet.NodeID) bool
	// Endings must be subscribed to the view.
	Endings *instances.Endings
	// Past holds the figures of the fleet over time; see system.NewPast.
	Past   *series.Ring
	Logs   *logs.Logs
	Shares *sharedtext.Shares
	// NoShares turns sharing off.
	NoShares bool
	// APIURL is the public URL of the gateway. It is empty if none is configured.
	APIURL string
	// Ready returns what the gateway still waits for before it can serve. It is empty when the
	// gateway is ready.
	Ready func(ctx context.Context) (waiting []string)
	// WithinName counts a login attempt for a user name. It returns false if there were too
	// many; then it has answered the request.
	WithinName func(c *gin.Context, name string) bool
	// WithinPictures counts an upload of a picture by the user with an id, like WithinName.
	WithinPictures func(c *gin.Context, user string) bool
	// Settings are the cluster settings in force.
	Settings *settings.Live
	// Meta identifies the cluster.
	Meta cluster.Meta
	// End asks this replica to shut down.
	End func()
	// Replica is the name of this gateway.
	Replica string
	// ClusterName is the display name of the cluster.
	ClusterName string
	// Version is the version of the gateway.
	Version string
	Log     *slog.Logger
	Now     func() time.Time
}

// Routes returns all routes under /api/v1, the pages of shared texts, and the health checks.
func Routes(cfg Config) []server.Route {
	inst := instances.New(instances.Config{
		Store: cfg.Store, View: cfg.View, Operations: cfg.Operations, Schedulers: cfg.Schedulers, Templates: cfg.Templates, Endings: cfg.Endings, Now: cfg.Now,
	})
	node := nodes.New(nodes.Config{
		Store: cfg.Store, View: cfg.View, Operations: cfg.Operations, Instances: inst, Stale: cfg.Stale, Now: cfg.Now,
	})
	sys := system.New(system.Config{
		Store: cfg.Store, View: cfg.View, Operations: cfg.Operations, Schedulers: cfg.Schedulers, Settings: cfg.Settings, Logs: cfg.Logs, Instances: inst, Nodes: node, Meta: cfg.Meta, Past: cfg.Past, Ready: cfg.Ready, End: cfg.End, Replica: cfg.Replica, ClusterName: cfg.ClusterName, Version: cfg.Version, APIURL: cfg.APIURL, NoShares: cfg.NoShares, Now: cfg.Now,
	})
	return slices.Concat(
		sys.Routes(), inst.Routes(), node.Routes(),
		accounts.New(accounts.Config{
			View: cfg.View, Operations: cfg.Operations, Auth: cfg.Auth, Templates: cfg.Templates, Settings: cfg.Settings, WithinName: cfg.WithinName, WithinPictures: cfg.WithinPictures, Log: cfg.Log, Now: cfg.Now,
		}).Routes(),
		audit.New(audit.Config{
			Operations: cfg.Operations,
		}).Routes(),
		catalog.New(catalog.Config{
			View: cfg.View, Operations: cfg.Operations, Hasher: cfg.Hasher, PinTime: cfg.PinTime,
		}).Routes(),
		crashes.New(crashes.Config{
			Store: cfg.Store, View: cfg.View, Now: cfg.Now,
		}).Routes(),
		groups.New(groups.Config{
			View: cfg.View, Operations: cfg.Operations, Schedulers: cfg.Schedulers, Now: cfg.Now,
		}).Routes(),
		players.New(players.Config{
			View: cfg.View, Operations: cfg.Operations, Players: cfg.Players,
		}).Routes(),
		shares.New(shares.Config{
			Store: cfg.Store, View: cfg.View, Operations: cfg.Operations, Shares: cfg.Shares, Logs: cfg.Logs, System: sys, NoShares: cfg.NoShares, APIURL: cfg.APIURL, Now: cfg.Now,
		}).Routes(),
		sources.New(sources.Config{
			Sources: cfg.Sources,
		}).Routes(),
		templates.New(templates.Config{
			Store: cfg.Store, View: cfg.View, Operations: cfg.Operations, Templates: cfg.Templates, Now: cfg.Now,
		}).Routes(),
	)
}
