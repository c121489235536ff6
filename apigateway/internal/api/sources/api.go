// Package sources serves the sources that templates, groups and the catalog are synchronized from.
package sources

import (
	"github.com/orreryhq/orrery/apigateway/internal/ops/sourceops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
)

// Config holds what the handlers need.
type Config struct {
	Sources *sourceops.Sources
}

// API holds the handlers.
type API struct{ cfg Config }

// New returns the handlers.
func New(cfg Config) *API { return &API{cfg: cfg} }

// Routes returns the routes of the package.
func (a *API) Routes() []server.Route {
	return a.sourceRoutes()
}
