// Package accounts serves users, roles, logins, API tokens and the credentials of instances.
package accounts

import (
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/auth/oidclogin"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/server/settings"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/fleet/account"
)

// Config holds what the handlers need.
type Config struct {
	Operations *ops.Operations
	Auth       *auth.Service
	Templates  *upstream.Templates
	// Settings are the cluster settings in force.
	Settings *settings.Live
	// Provider is the login provider, and GroupRoles the roles that its groups give.
	Provider   *oidclogin.Provider
	GroupRoles []account.GroupRole
	// ClusterName is shown in authenticators.
	ClusterName string
	// WithinName counts a login attempt for a user name. It returns false if there were too
	// many; then it has answered the request.
	WithinName func(c *gin.Context, name string) bool
	// WithinPictures counts an upload of a picture by the user with an id, like WithinName.
	WithinPictures func(c *gin.Context, user string) bool
}

// API holds the handlers.
type API struct{ cfg Config }

// New returns the handlers.
func New(cfg Config) *API { return &API{cfg: cfg} }

// Routes returns the routes of the package.
func (a *API) Routes() []server.Route {
	return slices.Concat(a.identityRoutes(), a.userRoutes(), a.serviceAccountRoutes(), a.accountRoutes(), a.roleRoutes(), a.bindingRoutes(), a.credentialRoutes())
}
