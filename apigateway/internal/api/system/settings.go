package system

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/store/view"
)

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
	c.JSON(http.StatusOK, a.settingsOf(a.cfg.View.Snapshot()))
}

func (a *API) settingsOf(s *view.Snapshot) systemSettings {
	return systemSettings{
		figures: figuresOf(s), MetricsEnabled: true, Replica: a.cfg.Replica, ClusterName: a.cfg.ClusterName, Version: a.cfg.Version,
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
