// Package shares serves shared texts: logs, consoles, crashes and diagnostics behind a link.
package shares

import (
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/api/system"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/sharedtext"
	"github.com/orreryhq/orrery/apigateway/internal/stream/logs"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Config holds what the handlers need.
type Config struct {
	Store      *store.Client
	View       *view.View
	Operations *ops.Operations
	Shares     *sharedtext.Shares
	Logs       *logs.Logs
	System     *system.API
	Now        func() time.Time
	// NoShares turns sharing off.
	NoShares bool
	// APIURL is the public URL of the gateway. It is empty if none is configured.
	APIURL string
}

// API holds the handlers.
type API struct{ cfg Config }

// New returns the handlers.
func New(cfg Config) *API { return &API{cfg: cfg} }

// Routes returns the routes of the package.
func (a *API) Routes() []server.Route {
	return a.shareRoutes()
}
