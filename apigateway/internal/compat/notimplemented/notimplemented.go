// Package notimplemented has the routes of features that do not exist yet. Lists are empty, single
// objects are not found, and actions and histories are refused with 501 NOT_IMPLEMENTED.
//
// To implement a feature, remove its routes here.
package notimplemented

import (
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
)

// Routes returns all routes.
func Routes() []server.Route { return slices.Concat(backups(), membership(), modules(), journeys()) }

func backups() []server.Route {
	manage := server.Needs(auth.BackupsManage)
	backup := notImplemented("backups", "save etcd's state with etcdctl snapshot save, and copy the directory of templatesvc's blobs")
	return server.Under("/api/v1",
		server.Get("/backups", server.Needs(auth.BackupsView), noBackups),
		server.Get("/backups/:id", server.Needs(auth.BackupsView), none("backup")),
		server.Post("/backups", manage, backup),
		server.Post("/backups/prune", manage, backup),
		server.Post("/backups/:id/verify", manage, backup),
		server.Delete("/backups/:id", manage, backup),
		server.Post("/restore", server.Needs(auth.BackupsRestore), notImplemented("restores", "restore etcd's state with etcdutl snapshot restore, and the directory of templatesvc's blobs")),
	)
}

// membership is for systems with registered members. Here every replica with the cluster secret is a
// member while it runs.
func membership() []server.Route {
	manage := server.Needs(auth.ClusterManage)
	join := notImplemented("tokens to join the control plane", "start another replica with the cluster's secret")
	return server.Under("/api/v1",
		server.Get("/cluster/join-tokens", manage, constant(gin.H{"tokens": []struct{}{}})),
		server.Post("/cluster/join-tokens", manage, join),
		server.Delete("/cluster/join-tokens/:id", manage, join),
		server.Delete("/cluster/members/:id", manage, notImplemented("removal of members", "stop the replica: it is a member only while it runs")),
		server.Post("/cluster/leave", manage, notImplemented("leaving", "stop the replica instead")),
		server.Post("/cluster/seed/rotate", manage, notImplemented("another seed", "replicas join with the cluster's secret")),
		server.Post("/bootstrap/exchange", server.Public, notImplemented("certificates of nodes", "agents join with the cluster's secret")),
	)
}

// modules are extensions of the control plane. The lists have the format that clients of PrexorCloud
// expect.
func modules() []server.Route {
	see, manage := server.Needs(auth.ModulesView), server.Needs(auth.ModulesManage)
	missing, action := none("module"), notImplemented("modules", "write a program that uses an API token and the event stream")
	nothing := []struct{}{}
	capabilityMetrics := gin.H{
		"resolutionCount": 0, "unresolvedRequirementCount": 0, "rebindingEventCount": 0, "deprecatedProviderResolutionCount": 0,
		"lastResolutionLatencyMillis": 0,
	}
	return server.Under("/api/v1/modules",
		server.Get("", see, page),
		server.Get("/platform", see, constant(gin.H{"modules": nothing, "capabilityMetrics": capabilityMetrics})),
		server.Get("/platform/manifests", see, constant(gin.H{"modules": nothing})),
		server.Get("/platform/capabilities", see, constant(gin.H{"modules": nothing, "bindings": nothing, "metrics": capabilityMetrics})),
		server.Get("/platform/extensions", see, func(c *gin.Context) { ofTarget(c, gin.H{"extensions": nothing}) }),
		server.Get("/platform/extensions/resolve", see, func(c *gin.Context) {
			ofTarget(c, gin.H{"target": "", "runtimeVersion": c.Query("version"), "resolved": nothing})
		}),
		server.Get("/platform/registry", see, constant(gin.H{"registries": nothing, "modules": nothing})),
		server.Get("/platform/leaked-classloaders", see, constant(gin.H{"tracking": false, "pending": nothing, "totals": gin.H{}})),
		server.Post("/platform/leaked-classloaders/force-cleanup", manage, action),
		server.Post("/platform/registry/install", manage, action),
		server.Post("/platform/upload", manage, action).Reads(server.Upload),
		server.Get("/platform/:name/health", see, missing),
		server.Get("/platform/:name/resources", see, missing),
		server.Get("/platform/:name/artifacts/*path", see, missing),
		server.Post("/platform/:name/upgrade", manage, action).Reads(server.Upload),
		server.Post("/platform/:name/frontend/reload", manage, action),
		server.Delete("/platform/:name", manage, action),
		server.Delete("/platform/:name/storage", manage, action),
		server.Get("/:name/frontend/*path", server.Public, missing),
	)
}

// journeys are where players have been. No service stores it.
func journeys() []server.Route {
	return []server.Route{server.Get("/api/v1/players/:uuid/journey", server.Needs(auth.PlayersView),
		notImplemented("the instances where a player was", "follow the events PLAYER_CONNECTED, PLAYER_TRANSFER and PLAYER_DISCONNECTED"))}
}

// ofTarget sends a response that repeats the target of the request.
func ofTarget(c *gin.Context, out gin.H) {
	if target := c.Query("target"); target != "" {
		out["target"] = target
	}
	c.JSON(http.StatusOK, out)
}

// notImplemented refuses a request and says what to do instead.
func notImplemented(what, instead string) gin.HandlerFunc {
	message := "not implemented yet: " + what + "; " + instead
	return func(c *gin.Context) {
		server.Refuse(c, wire.Reply{Status: http.StatusNotImplemented, Code: "NOT_IMPLEMENTED", Message: message})
	}
}

// none answers that an object does not exist.
func none(what string) gin.HandlerFunc {
	return func(c *gin.Context) { server.Fail(c, errs.New(errs.NotFound, "there is no such %s", what)) }
}

// constant sends a constant response.
func constant(v any) gin.HandlerFunc {
	return func(c *gin.Context) { c.JSON(http.StatusOK, v) }
}

// emptyPage also has the items in the field where existing clients look for them.
type emptyPage struct {
	server.Page[struct{}]
	Items []struct{} `json:"items"`
}

const (
	pageDefault = 50
	pageMost    = 100
)

// empty returns an empty page. If ok is false, the error response was sent.
func empty(c *gin.Context) (out emptyPage, ok bool) {
	out.Data, out.Items = []struct{}{}, []struct{}{}
	wanted, ok := server.PageOf(c, pageDefault, pageMost)
	out.Page.Page, out.PageSize = wanted.Number, wanted.Size
	return out, ok
}

func page(c *gin.Context) {
	if out, ok := empty(c); ok {
		c.JSON(http.StatusOK, out)
	}
}

// noBackups sends an empty page of backups with the storage location.
func noBackups(c *gin.Context) {
	if out, ok := empty(c); ok {
		c.JSON(http.StatusOK, struct {
			emptyPage
			Directory      string `json:"directory"`
			RetentionCount int    `json:"retentionCount"`
		}{emptyPage: out})
	}
}
