package system

import (
	"net/http"
	"runtime"
	"runtime/debug"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/instances"
	"github.com/orreryhq/orrery/apigateway/internal/api/players"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
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

// figures count the objects of the fleet.
type figures struct {
	NodeCount     int `json:"nodeCount"` // connected nodes
	InstanceCount int `json:"instanceCount"`
	PlayerCount   int `json:"playerCount"`
	GroupCount    int `json:"groupCount"`
}

// overview is the figures of the fleet, and how this gateway serves the API.
type overview struct {
	figures
	InsecureHTTP bool `json:"insecureHttp"`
}

func (a *API) overview(c *gin.Context) {
	c.JSON(http.StatusOK, overview{figuresOf(a.cfg.Operations.Snapshot(), server.Sight(c, auth.InstancesView)), a.cfg.InsecureHTTP})
}

// figuresOf counts what is in the groups that sees allows, or if it is nil all.
func figuresOf(s *view.Snapshot, sees func(fleet.GroupName) bool) (out figures) {
	all := sees == nil
	if all {
		sees = func(fleet.GroupName) bool { return true }
	}
	for id := range s.Nodes.All() {
		if _, alive := s.NodeSessions.Get(id); alive && all {
			out.NodeCount++
		}
	}
	for _, g := range s.Groups.All() {
		if !g.Deleting && sees(g.Name) {
			out.GroupCount++
		}
	}
	perGroup := map[fleet.GroupName]int{}
	for _, i := range s.Instances.All() {
		if !sees(i.Intent.Group) {
			continue
		}
		if !i.Terminal() {
			out.InstanceCount++
		}
		if i.State().Running() { // the last report of an OFFLINE instance is out of date
			perGroup[i.Intent.Group] += instances.ReportOf(s, i).Players
		}
	}
	out.PlayerCount = players.CountOnce(perGroup, s.Networks.All(), s.RoutesPlayers)
	return out
}

// systemSettings are the settings in force on this replica. None is a secret.
type systemSettings struct {
	figures
	// SchedulerInterval and HeartbeatInterval exist for clients of PrexorCloud's API. They are 0
	// because Orrery does not poll.
	SchedulerInterval   int            `json:"schedulerInterval"`
	HeartbeatInterval   int            `json:"heartbeatInterval"`
	MetricsEnabled      bool           `json:"metricsEnabled"`
	Replica             string         `json:"replica"`
	ClusterName         string         `json:"clusterName"`
	Version             string         `json:"version"`
	ActiveConfigVersion int64          `json:"activeConfigVersion"`
	Effective           map[string]any `json:"effective"`
}

func (a *API) systemSettings(c *gin.Context) {
	c.JSON(http.StatusOK, a.settingsOf(a.cfg.Operations.Snapshot()))
}

func (a *API) settingsOf(s *view.Snapshot) systemSettings {
	return systemSettings{
		figures: figuresOf(s, nil), MetricsEnabled: true, Replica: a.cfg.Replica, ClusterName: a.cfg.ClusterName, Version: a.cfg.Version,
		ActiveConfigVersion: s.Config().Version, Effective: nested(a.cfg.Settings.Now().Patch()),
	}
}

// shutdown shuts this replica down after it answered the running requests.
func (a *API) shutdown(c *gin.Context) {
	if server.DryRun(c) {
		c.JSON(http.StatusOK, gin.H{"dryRun": true, "action": "stop", "replica": a.cfg.Replica})
		return
	}
	if _, err := a.cfg.Operations.Record(c.Request.Context(), server.Actor(c), "system.shutdown", "replica", a.cfg.Replica, ""); err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusAccepted, gin.H{"status": "STOPPING", "replica": a.cfg.Replica})
	a.cfg.End()
}
