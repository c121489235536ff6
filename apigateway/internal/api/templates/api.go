// Package templates serves templates: their versions, files, variables and drafts.
package templates

import (
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Config holds what the handlers need.
type Config struct {
	Store      *store.Client
	View       *view.View
	Operations *ops.Operations
	Templates  *upstream.Templates
	Now        func() time.Time
}

// API holds the handlers.
type API struct{ cfg Config }

// New returns the handlers.
func New(cfg Config) *API { return &API{cfg: cfg} }

// Routes returns the routes of the package.
func (a *API) Routes() []server.Route {
	return a.templateRoutes()
}
