// Package audit serves the audit log and the history of single objects.
package audit

import (
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
)

// Config holds what the handlers need.
type Config struct {
	Operations *ops.Operations
}

// API holds the handlers.
type API struct{ cfg Config }

// New returns the handlers.
func New(cfg Config) *API { return &API{cfg: cfg} }

// Routes returns the routes of the package.
func (a *API) Routes() []server.Route {
	return a.historyRoutes()
}
