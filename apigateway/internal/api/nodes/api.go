// Package nodes serves nodes, their caches and the tokens with which new nodes join.
package nodes

import (
	"slices"

	"github.com/orreryhq/orrery/apigateway/internal/api/instances"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Config holds what the handlers need.
type Config struct {
	Operations *ops.Operations
	Instances  *instances.API
	Schedulers *upstream.Schedulers
	// Stale reports whether the reports of a node are overdue.
	Stale func(fleet.NodeID) bool
	// WholeToken returns the text of a join token with what a host must know. usable is false, and the text
	// the token alone, if no gateway serves nodes.
	WholeToken func(token string, node fleet.NodeID) (text string, usable bool)
}

// API holds the handlers.
type API struct{ cfg Config }

// New returns the handlers.
func New(cfg Config) *API { return &API{cfg: cfg} }

// Routes returns the routes of the package.
func (a *API) Routes() []server.Route {
	return slices.Concat(a.nodeRoutes(), a.joinTokenRoutes(), a.revokedNodeRoutes())
}
