package nodes

import (
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/nodeops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
)

// shutdownNode makes the agent of a node stop its instances and exit. It does not wait for that.
func (a *API) shutdownNode(c *gin.Context) {
	var b struct {
		Reason string `json:"reason"`
	}
	if !server.BindOptional(c, &b) {
		return
	}
	id := fleet.NodeID(c.Param("id"))
	err := a.cfg.Operations.ShutdownNode(c.Request.Context(), server.Actor(c), id, b.Reason, server.DryRun(c))
	switch {
	case errors.Is(err, nodeops.ErrNodeNotConnected):
		server.Refuse(c, wire.Reply{Status: http.StatusConflict, Code: "NODE_NOT_CONNECTED", Message: errs.MessageOf(err)})
	case err != nil:
		server.Fail(c, err)
	case server.DryRun(c):
		c.JSON(http.StatusOK, gin.H{"dryRun": true, "action": "stop", "nodeId": id})
	default:
		c.JSON(http.StatusAccepted, gin.H{"status": "STOPPING", "nodeId": id})
	}
}
