// Package catalog serves the catalog of server software.
package catalog

import (
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/background/cataloghash"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Config holds what the handlers need.
type Config struct {
	View       *view.View
	Operations *ops.Operations
	Hasher     *cataloghash.Hasher
	// PinTime bounds how long an answer waits for the first download of a version.
	PinTime time.Duration
}

// API holds the handlers.
type API struct{ cfg Config }

// New returns the handlers.
func New(cfg Config) *API { return &API{cfg: cfg} }

// Routes returns the routes of the package.
func (a *API) Routes() []server.Route {
	return a.catalogRoutes()
}
