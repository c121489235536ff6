// Package groups serves groups, the quotas that bound them, the networks that join them, and the
// schedules and overlays that change them over time.
//
// A read loses nothing: every part of a group's spec is in its JSON, and writing it back
// unchanged changes nothing.
package groups

import (
	"slices"

	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
)

// Config holds what the handlers need.
type Config struct {
	Operations *ops.Operations
	Schedulers *upstream.Schedulers
	Enforcers  *upstream.Enforcers
}

// API holds the handlers.
type API struct{ cfg Config }

// New returns the handlers.
func New(cfg Config) *API { return &API{cfg: cfg} }

// Routes returns the routes of the package.
func (a *API) Routes() []server.Route {
	return slices.Concat(a.groupRoutes(), a.deploymentRoutes(), a.networkRoutes(), a.quotaRoutes(), a.scheduleRoutes(), a.overlayRoutes())
}
