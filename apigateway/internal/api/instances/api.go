// Package instances serves instances: their state, actions on them, their consoles and files.
package instances

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
	Templates  *upstream.Templates
	// Endings must be subscribed to the view.
	Endings *Endings
}

// API holds the handlers.
type API struct {
	cfg   Config
	shown *viewCache
}

// New returns the handlers.
func New(cfg Config) *API { return &API{cfg: cfg, shown: newViewCache(cfg.Endings)} }

// Routes returns the routes of the package.
func (a *API) Routes() []server.Route {
	return slices.Concat(a.instanceRoutes(prexorCloudPath), a.instanceRoutes("/api/v1/instances"), a.instanceFileRoutes(), a.instanceBackupRoutes())
}
