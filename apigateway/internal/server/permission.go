package server

import (
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
)

// Beside permissions, what a route may demand.
const (
	// Public routes need no token.
	Public auth.Permission = "public"
	// Anyone with a good token may use the route.
	Anyone auth.Permission = "anyone"
	// Ticketed routes look at the caller themselves: a ticket is as good as a token.
	Ticketed auth.Permission = "ticketed"
	// Login is public too, and counted by the limit of logins.
	Login auth.Permission = "login"
	// Own routes are for an instance, which is the one whose own token is sent.
	Own auth.Permission = "own"
)

// demands is the one table of what each route wants. /api/v1/instances is the
// same as /api/v1/services and has no rows of its own.
var demands = map[string]auth.Permission{
	"GET /livez": Public, "GET /readyz": Public, "GET /health": Public, "GET /ready": Public,
	"GET /api/v1/system/health": Public, "GET /api/v1/system/ready": Public, "GET /api/v1/system/version": Public,

	"POST /api/v1/auth/login": Login, "POST /api/v1/auth/refresh": Anyone, "GET /api/v1/auth/me": Anyone,

	"GET /api/v1/api-tokens":        auth.TokensView,
	"POST /api/v1/api-tokens":       auth.TokensCreate,
	"DELETE /api/v1/api-tokens/:id": auth.TokensRevoke,

	"GET /api/v1/groups":                                          auth.GroupsView,
	"POST /api/v1/groups":                                         auth.GroupsCreate,
	"GET /api/v1/groups/:name":                                    auth.GroupsView,
	"PUT /api/v1/groups/:name":                                    auth.GroupsUpdate, // and groups.create, when it creates
	"PATCH /api/v1/groups/:name":                                  auth.GroupsUpdate,
	"DELETE /api/v1/groups/:name":                                 auth.GroupsDelete,
	"POST /api/v1/groups/:name/start":                             auth.GroupsStart,
	"POST /api/v1/groups/:name/scale":                             auth.GroupsUpdate,
	"GET /api/v1/services":                                        auth.InstancesView,
	"GET /api/v1/services/:id":                                    auth.InstancesView,
	"GET /api/v1/services/:id/explain":                            auth.InstancesView,
	"GET /api/v1/services/:id/composition":                        auth.InstancesView,
	"DELETE /api/v1/services/:id":                                 auth.InstancesDelete,
	"POST /api/v1/services/:id/stop":                              auth.InstancesStop,
	"POST /api/v1/services/:id/start":                             auth.GroupsStart,
	"GET /api/v1/crashes":                                         auth.CrashesView,
	"GET /api/v1/crashes/trends":                                  auth.CrashesView,
	"GET /api/v1/crashes/:id":                                     auth.CrashesView,
	"GET /api/v1/nodes":                                           auth.NodesView,
	"GET /api/v1/nodes/:id":                                       auth.NodesView,
	"PATCH /api/v1/nodes/:id":                                     auth.NodesUpdate,
	"DELETE /api/v1/nodes/:id":                                    auth.NodesDrain,
	"POST /api/v1/nodes/:id/cordon":                               auth.NodesDrain,
	"POST /api/v1/nodes/:id/uncordon":                             auth.NodesDrain,
	"GET /api/v1/quotas":                                          auth.QuotasView,
	"GET /api/v1/catalog":                                         auth.CatalogView,
	"POST /api/v1/catalog/:platform/versions":                     auth.CatalogManage,
	"PATCH /api/v1/catalog/:platform/versions/:version":           auth.CatalogManage,
	"DELETE /api/v1/catalog/:platform/versions/:version":          auth.CatalogManage,
	"PUT /api/v1/catalog/:platform/versions/:version/recommended": auth.CatalogManage,
	"GET /api/v1/quotas/:name":                                    auth.QuotasView,
	"PUT /api/v1/quotas/:name":                                    auth.QuotasManage,
	"DELETE /api/v1/quotas/:name":                                 auth.QuotasManage,
	"GET /api/v1/templates":                                       auth.TemplatesView,
	"GET /api/v1/templates/:name":                                 auth.TemplatesView,
	"POST /api/v1/simulate":                                       auth.NodesView,
	"GET /api/v1/overview":                                        Anyone,
	"GET /api/v1/audit":                                           auth.AuditView,
	"POST /api/v1/events/ticket":                                  auth.EventsStream,
	"GET /api/v1/events/stream":                                   Ticketed,
	"POST /api/v1/services/:id/restart":                           auth.InstancesStop,

	"POST /api/v1/groups/:name/crash-loop/reset": auth.GroupsUpdate,

	"POST /api/v1/services/:id/force-stop":     auth.InstancesStop,
	"POST /api/v1/services/:id/command":        auth.InstancesCommand,
	"GET /api/v1/services/:id/console/history": auth.InstancesConsole,
	"GET /api/v1/services/:id/console/output":  auth.InstancesConsole,
	"POST /api/v1/services/:id/console/ticket": auth.InstancesConsole,
	"GET /api/v1/services/:id/console":         Ticketed,
	"GET /api/v1/services/:id/attach":          Ticketed,
	"GET /api/v1/templates/:name/versions":     auth.TemplatesView,
	"POST /api/v1/templates/:name/rollback":    auth.TemplatesUpdate,

	"GET /api/v1/templates/:name/files":          auth.TemplatesView,
	"GET /api/v1/templates/:name/files/content":  auth.TemplatesView,
	"GET /api/v1/templates/:name/files/download": auth.TemplatesView,
	"GET /api/v1/templates/:name/search":         auth.TemplatesView,
	"GET /api/v1/templates/:name/inheritance":    auth.TemplatesView,
	"GET /api/v1/templates/:name/variables/scan": auth.TemplatesView,

	"POST /api/v1/services/:id/save-to-template": auth.TemplatesUpdate,

	"POST /api/v1/templates/sync":          auth.TemplatesUpdate,
	"GET /api/v1/nodes/:id/cache":          auth.NodesView,
	"POST /api/v1/nodes/:id/cache/refresh": auth.NodesView,
	"POST /api/v1/nodes/:id/cache/warm":    auth.NodesDrain,

	"GET /api/v1/templates/:name/variables": auth.TemplatesView,
	"PUT /api/v1/templates/:name/variables": auth.TemplatesUpdate,
	"POST /api/v1/templates/:name/rehash":   auth.TemplatesUpdate,
	"GET /api/v1/templates/:name/draft":     auth.TemplatesUpdate,
	"DELETE /api/v1/templates/:name/draft":  auth.TemplatesUpdate,
	"GET /api/v1/templates/:name/diff":      auth.TemplatesView,

	"POST /api/v1/templates":                        auth.TemplatesCreate,
	"POST /api/v1/templates/import":                 auth.TemplatesCreate,
	"PATCH /api/v1/templates/:name":                 auth.TemplatesUpdate,
	"DELETE /api/v1/templates/:name":                auth.TemplatesDelete,
	"DELETE /api/v1/templates/:name/versions/:hash": auth.TemplatesDelete,
	"GET /api/v1/templates/:name/history":           auth.TemplatesView,
	"DELETE /api/v1/templates/:name/files":          auth.TemplatesUpdate,
	"PUT /api/v1/templates/:name/files/content":     auth.TemplatesUpdate,
	"POST /api/v1/templates/:name/files/mkdir":      auth.TemplatesUpdate,
	"POST /api/v1/templates/:name/files/rename":     auth.TemplatesUpdate,
	"POST /api/v1/templates/:name/files/upload":     auth.TemplatesUpdate,
	"POST /api/v1/templates/:name/files/extract":    auth.TemplatesUpdate,
	"GET /api/v1/templates/:name/export":            auth.TemplatesView,
	"GET /api/v1/gitops":                            auth.GroupsView,
	"GET /api/v1/secrets":                           auth.SystemSettings,
	"GET /api/v1/secrets/:name":                     auth.SystemSettings,
	"PUT /api/v1/secrets/:name":                     auth.SystemSettings,
	"DELETE /api/v1/secrets/:name":                  auth.SystemSettings,

	"GET /api/v1/template-sources":                auth.TemplatesView,
	"GET /api/v1/template-sources/:name":          auth.TemplatesView,
	"PUT /api/v1/template-sources/:name":          auth.SystemSettings, // what it names is read by the services themselves
	"DELETE /api/v1/template-sources/:name":       auth.SystemSettings,
	"POST /api/v1/template-sources/:name/sync":    auth.TemplatesUpdate,
	"POST /api/v1/template-sources/:name/webhook": Public, // the call is signed

	"POST /api/plugin/ready":        Own,
	"POST /api/plugin/heartbeat":    Own,
	"POST /api/plugin/auth/refresh": Own,
	"POST /api/proxy/ready":         Own,
	"POST /api/proxy/heartbeat":     Own,
	"POST /api/proxy/auth/refresh":  Own,

	// The older dialect's routes name their permissions where they are mounted; see Require.
	"GET /api/ping":                      Public,
	"GET /api/configurations":            Anyone,
	"GET /api/configurations/:name":      Anyone,
	"PUT /api/configurations/:name":      Anyone,
	"DELETE /api/configurations/:name":   Anyone,
	"GET /api/instances":                 Anyone,
	"POST /api/instances":                Anyone,
	"GET /api/instances/:id":             Anyone,
	"DELETE /api/instances/:id":          Anyone,
	"PATCH /api/instances/:id/lifecycle": Anyone,
	"POST /api/instances/:id/execute":    Anyone,
	"GET /api/instances/:id/logs":        Anyone,
	"GET /api/instances/:id/live-log":    Ticketed,
	"PUT /api/instances/:id/state":       Anyone,
	"GET /api/cluster/nodes":             Anyone,
	"GET /api/cluster/nodes/:id":         Anyone,
	"GET /api/templates":                 Anyone,
	"GET /api/templates/:group/:name":    Anyone,

	"GET /api/templates/:group/:name/files":       Anyone,
	"GET /api/templates/:group/:name/files/*path": Anyone,

	"PATCH /api/templates/:group/:name/files/*path":  Anyone,
	"POST /api/templates/:group/:name/files/*path":   Anyone,
	"DELETE /api/templates/:group/:name/files/*path": Anyone,
	"POST /api/templates/:group/:name/export":        Anyone,
	"POST /api/templates/:group/:name/import":        Anyone,
	"POST /api/templates/:group/:name/sync":          Anyone,
	"POST /api/templates/sync":                       Anyone,
}

// DemandOf is what a route demands; ok is false for a route the table does not know.
func DemandOf(method, route string) (demand auth.Permission, ok bool) {
	if rest, alias := strings.CutPrefix(route, "/api/v1/instances"); alias {
		route = "/api/v1/services" + rest
	}
	demand, ok = demands[method+" "+route]
	return demand, ok
}

// ownInstance are the routes an instance may use for itself with its own token.
var ownInstance = map[string]bool{"GET /api/instances/:id": true, "PUT /api/instances/:id/state": true}

// ownPermissions are what its own token lets an instance do on those routes.
var ownPermissions = []auth.Permission{auth.InstancesView, auth.InstancesCommand}
