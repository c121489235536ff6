package system

import (
	"net/http"
	"runtime"
	"runtime/debug"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
)

// systemRoutes serve health checks, the version, simulations, the overview and the settings.
func (a *API) systemRoutes() []server.Route {
	return []server.Route{
		server.Get("/livez", server.Public, a.alive),
		server.Get("/health", server.Public, a.health),
		server.Get("/api/v1/system/health", server.Public, a.health),
		server.Get("/readyz", server.Public, a.ready),
		server.Get("/ready", server.Public, a.ready),
		server.Get("/api/v1/system/ready", server.Public, a.ready),
		server.Get("/api/v1/system/version", server.Public, a.version),
		server.Post("/api/v1/simulate", server.Needs(auth.NodesView), a.simulate),
		server.Get("/api/v1/overview", server.Anyone, a.overview),
		server.Get("/api/v1/system/settings", server.Needs(auth.SystemSettings), a.systemSettings),
		server.Post("/api/v1/system/shutdown", server.Needs(auth.SystemShutdown), a.shutdown).Rehearses(),
	}
}

func (a *API) alive(c *gin.Context) { c.JSON(http.StatusOK, gin.H{"status": "UP"}) }

// checks returns the readiness checks and whether all pass.
func (a *API) checks(c *gin.Context) (gin.H, bool) {
	waiting := a.cfg.Ready(c.Request.Context())
	status, checks := "READY", gin.H{"store": "UP"}
	for _, w := range waiting {
		status, checks[w] = "NOT_READY", "DOWN"
	}
	return gin.H{"status": status, "checks": checks}, len(waiting) == 0
}

// health answers that the process is up, and whether it is ready.
func (a *API) health(c *gin.Context) {
	readiness, _ := a.checks(c)
	c.JSON(http.StatusOK, gin.H{"status": "UP", "readiness": readiness})
}

func (a *API) ready(c *gin.Context) {
	readiness, ok := a.checks(c)
	status := http.StatusOK
	if !ok {
		status = http.StatusServiceUnavailable
		c.Header("Retry-After", "1")
		readiness["error"] = gin.H{ // clients that expect an error find one
			"code": wire.Code(errs.Unavailable), "message": "the gateway is not ready: retry in a moment", "status": status,
		}
	}
	c.JSON(status, readiness)
}

func (a *API) version(c *gin.Context) {
	commit := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = s.Value
			}
		}
	}
	c.JSON(http.StatusOK, gin.H{
		"name": "orrery", "version": a.cfg.Version, "gitCommit": commit, "goVersion": runtime.Version(), "javaVersion": "",
	})
}
