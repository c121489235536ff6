package universe

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// syncTemplates brings the templates of a pattern to the nodes, and says of each what
// came of it.
func (a *API) syncTemplates(c *gin.Context) {
	var b struct {
		Pattern    string       `json:"pattern"`
		TargetNode fleet.NodeID `json:"targetNode"`
	}
	if err := body(c, &b); err != nil {
		fail(c, err)
		return
	}
	q := operate.SyncRequest{Pattern: b.Pattern, DryRun: server.DryRun(c)}
	if b.TargetNode != "" {
		q.Nodes = []fleet.NodeID{b.TargetNode}
	}
	server.Unhurried(c)
	report, err := a.cfg.Operations.SyncTemplates(c.Request.Context(), a.cfg.By(c), q)
	switch {
	case errs.Is(err, errs.Invalid) && errs.FieldOf(err) != "pattern":
		fail(c, errs.New(errs.NotFound, "Node not found"))
	case errs.Is(err, errs.Invalid):
		refuse(c, http.StatusBadRequest, "pattern "+errs.MessageOf(err))
	case err != nil:
		fail(c, err)
	default:
		c.JSON(http.StatusOK, report)
	}
}
