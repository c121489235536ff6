package templates

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/templateops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet"
)

// syncTemplates makes nodes fetch the current versions of templates, and reports the result of
// each.
func (a *API) syncTemplates(c *gin.Context) {
	var b struct {
		Pattern string         `json:"pattern"`
		Nodes   []fleet.NodeID `json:"nodes"`
	}
	if !server.Bind(c, &b) {
		return
	}
	server.Unhurried(c)
	report, err := a.cfg.Operations.SyncTemplates(c.Request.Context(), server.Actor(c), templateops.SyncRequest{Pattern: b.Pattern, Nodes: b.Nodes, DryRun: server.DryRun(c)})
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, report)
}
