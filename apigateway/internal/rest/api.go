package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Pages at most as long as the reference's.
const (
	pageMany = 500
	pageSome = 200
	pageFew  = 100
)

// Config is what the API needs; all of it is required.
type Config struct {
	Store      *store.Client
	View       *view.View
	Auth       *auth.Service
	Operations *operate.Operations
	Sources    *operate.Sources
	Templates  *upstream.Templates
	Schedulers *upstream.Schedulers
	// Ready tells what the gateway waits for before it can serve; nothing when it can.
	Ready func(ctx context.Context) (waiting []string)
	// Version is the gateway's own.
	Version string
	Now     func() time.Time
}

// API serves Orrery's own dialect.
type API struct{ cfg Config }

// New wires the API.
func New(cfg Config) *API { return &API{cfg} }

// Mount adds the routes. Who may use which stands in the server's table.
func (a *API) Mount(r gin.IRoutes) {
	a.mountSystem(r)

	r.POST("/api/v1/auth/login", a.login)
	r.POST("/api/v1/auth/refresh", a.refresh)
	r.GET("/api/v1/auth/me", a.me)
	r.GET("/api/v1/api-tokens", a.listTokens)
	r.POST("/api/v1/api-tokens", a.createToken)
	r.DELETE("/api/v1/api-tokens/:id", a.deleteToken)

	r.GET("/api/v1/groups", a.listGroups)
	r.POST("/api/v1/groups", a.createGroup)
	r.GET("/api/v1/groups/:name", a.getGroup)
	r.PUT("/api/v1/groups/:name", a.putGroup)
	r.PATCH("/api/v1/groups/:name", a.patchGroup)
	r.DELETE("/api/v1/groups/:name", a.deleteGroup)
	r.POST("/api/v1/groups/:name/start", a.startGroup)
	r.POST("/api/v1/groups/:name/scale", a.scaleGroup)
	r.POST("/api/v1/groups/:name/crash-loop/reset", a.resetCrashLoop)

	r.GET("/api/v1/crashes", a.listCrashes)
	r.GET("/api/v1/crashes/trends", a.crashTrends)
	r.GET("/api/v1/crashes/:id", a.getCrash)

	for _, base := range []string{"/api/v1/services", "/api/v1/instances"} {
		a.mountInstances(r, base)
	}

	r.GET("/api/v1/nodes", a.listNodes)
	r.GET("/api/v1/nodes/:id", a.getNode)
	r.PATCH("/api/v1/nodes/:id", a.patchNode)
	r.DELETE("/api/v1/nodes/:id", a.deleteNode)
	r.POST("/api/v1/nodes/:id/cordon", a.cordon)
	r.POST("/api/v1/nodes/:id/uncordon", a.uncordon)
	r.GET("/api/v1/nodes/:id/cache", a.nodeCache)
	r.POST("/api/v1/nodes/:id/cache/refresh", a.refreshCache)
	r.POST("/api/v1/nodes/:id/cache/warm", a.warmCache)

	r.GET("/api/v1/catalog", a.listCatalog)
	r.POST("/api/v1/catalog/:platform/versions", a.addArtifact)
	r.PATCH("/api/v1/catalog/:platform/versions/:version", a.patchArtifact)
	r.DELETE("/api/v1/catalog/:platform/versions/:version", a.deleteArtifact)
	r.PUT("/api/v1/catalog/:platform/versions/:version/recommended", a.recommendArtifact)

	r.GET("/api/v1/quotas", a.listQuotas)
	r.GET("/api/v1/quotas/:name", a.getQuota)
	r.PUT("/api/v1/quotas/:name", a.putQuota)
	r.DELETE("/api/v1/quotas/:name", a.deleteQuota)

	a.mountTemplates(r)

	r.GET("/api/v1/gitops", a.gitops)
	r.GET("/api/v1/secrets", a.listSecrets)
	r.GET("/api/v1/secrets/:name", a.getSecret)
	r.PUT("/api/v1/secrets/:name", a.putSecret)
	r.DELETE("/api/v1/secrets/:name", a.deleteSecret)
	r.GET("/api/v1/template-sources", a.listSources)
	r.GET("/api/v1/template-sources/:name", a.getSource)
	r.PUT("/api/v1/template-sources/:name", a.putSource)
	r.DELETE("/api/v1/template-sources/:name", a.deleteSource)
	r.POST("/api/v1/template-sources/:name/sync", a.syncSource)
	r.POST("/api/v1/template-sources/:name/webhook", a.sourceWebhook)

	for _, base := range []string{"/api/plugin", "/api/proxy"} {
		a.mountPlugin(r, base)
	}

	r.POST("/api/v1/simulate", a.simulate)
	r.GET("/api/v1/overview", a.overview)
	r.GET("/api/v1/audit", a.listAudit)
}

func (a *API) mountInstances(r gin.IRoutes, base string) {
	r.GET(base, a.listInstances)
	r.GET(base+"/:id", a.getInstance)
	r.GET(base+"/:id/explain", a.explain)
	r.GET(base+"/:id/composition", a.composition)
	r.DELETE(base+"/:id", a.deleteInstance)
	r.POST(base+"/:id/start", a.startInstance)
	r.POST(base+"/:id/restart", a.restartInstance)
	r.POST(base+"/:id/stop", a.stopInstance(false))
	r.POST(base+"/:id/force-stop", a.stopInstance(true))
	r.POST(base+"/:id/command", a.command)
	r.POST(base+"/:id/save-to-template", a.saveToTemplate)
	r.GET(base+"/:id/console/history", a.history)
	r.GET(base+"/:id/console/output", a.output)
}

func (a *API) snapshot() *view.Snapshot { return a.cfg.View.Snapshot() }

// reported are the figures an instance's agent last reported.
func reported(s *view.Snapshot, i *fleet.Instance) fleet.InstanceReport {
	if r, ok := s.Reports.Get(i.Node()); ok {
		return r.Instances[i.Intent.ID]
	}
	return fleet.InstanceReport{}
}

// overview counts what there is.
func (a *API) overview(c *gin.Context) {
	s := a.snapshot()
	var out struct {
		NodeCount     int `json:"nodeCount"`
		InstanceCount int `json:"instanceCount"`
		PlayerCount   int `json:"playerCount"`
		GroupCount    int `json:"groupCount"`
	}
	for id := range s.Nodes.All() {
		if _, alive := s.NodeSessions.Get(id); alive {
			out.NodeCount++
		}
	}
	for _, g := range s.Groups.All() {
		if !g.Deleting {
			out.GroupCount++
		}
	}
	for _, i := range s.Instances.All() {
		if !i.Terminal() {
			out.InstanceCount++
			out.PlayerCount += reported(s, i).Players
		}
	}
	c.JSON(http.StatusOK, out)
}
