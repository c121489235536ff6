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
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/accounts"
	"github.com/orreryhq/orrery/apigateway/internal/api/allocations"
	"github.com/orreryhq/orrery/apigateway/internal/api/applied"
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
	"github.com/orreryhq/orrery/apigateway/internal/auth/oidclogin"
	"github.com/orreryhq/orrery/apigateway/internal/background/cataloghash"
	"github.com/orreryhq/orrery/apigateway/internal/ops/sourceops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/sharedtext"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/apigateway/internal/workload/presence"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
)

// Config holds what the API needs. All fields are required unless their comment says otherwise.
type Config struct {
	// Config holds what most handlers need. Routes sets its fields Instances and Nodes.
	system.Config
	Auth *auth.Service
	// Provider is the login provider, and GroupRoles the roles that its groups give.
	Provider   *oidclogin.Provider
	GroupRoles []account.GroupRole
	Sources    *sourceops.Sources
	Templates  *upstream.Templates
	Hasher     *cataloghash.Hasher
	// PinTime bounds how long an answer waits for the first download of a version.
	PinTime time.Duration
	Players *presence.Table
	// Stale reports whether the reports of a node are overdue.
	Stale func(fleet.NodeID) bool
	// WholeToken is that of package nodes.
	WholeToken func(token string, node fleet.NodeID) (text string, usable bool)
	// Endings must be subscribed to the view.
	Endings *instances.Endings
	Shares  *sharedtext.Shares
	// WithinName counts a login attempt for a user name. It returns false if there were too
	// many; then it has answered the request.
	WithinName func(c *gin.Context, name string) bool
	// WithinPictures counts an upload of a picture by the user with an id, like WithinName.
	WithinPictures func(c *gin.Context, user string) bool
}

// Routes returns all routes under /api/v1, the pages of shared texts, and the health checks.
func Routes(cfg Config) []server.Route {
	o := cfg.Operations
	cfg.Instances = instances.New(instances.Config{Operations: o, Schedulers: cfg.Schedulers, Templates: cfg.Templates, Endings: cfg.Endings})
	cfg.Nodes = nodes.New(nodes.Config{Operations: o, Instances: cfg.Instances, Schedulers: cfg.Schedulers, Stale: cfg.Stale, WholeToken: cfg.WholeToken})
	sys := system.New(cfg.Config)
	return slices.Concat(
		sys.Routes(), cfg.Instances.Routes(), cfg.Nodes.Routes(),
		accounts.New(accounts.Config{
			Operations: o, Auth: cfg.Auth, Templates: cfg.Templates, Settings: cfg.Settings, ClusterName: cfg.ClusterName, WithinName: cfg.WithinName, WithinPictures: cfg.WithinPictures,
			Provider: cfg.Provider, GroupRoles: cfg.GroupRoles,
		}).Routes(),
		allocations.New(o).Routes(),
		applied.New(o).Routes(),
		audit.New(o).Routes(),
		catalog.New(catalog.Config{Operations: o, Hasher: cfg.Hasher, PinTime: cfg.PinTime}).Routes(),
		crashes.New(o).Routes(),
		groups.New(groups.Config{Operations: o, Schedulers: cfg.Schedulers, Enforcers: cfg.Enforcers}).Routes(),
		players.New(players.Config{Operations: o, Players: cfg.Players}).Routes(),
		shares.New(shares.Config{
			Operations: o, Shares: cfg.Shares, Logs: cfg.Logs, System: sys, NoShares: cfg.NoShares, APIURL: cfg.APIURL,
		}).Routes(),
		sources.New(cfg.Sources).Routes(),
		templates.New(templates.Config{Operations: o, Templates: cfg.Templates}).Routes(),
	)
}
