// Package players serves connected players.
package players

import (
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/workload/presence"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Config holds what the handlers need.
type Config struct {
	View       *view.View
	Operations *ops.Operations
	Players    *presence.Table
}

// API holds the handlers.
type API struct{ cfg Config }

// New returns the handlers.
func New(cfg Config) *API { return &API{cfg: cfg} }

// Routes returns the routes of the package.
func (a *API) Routes() []server.Route {
	return a.playerRoutes()
}
