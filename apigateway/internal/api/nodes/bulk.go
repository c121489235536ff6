package nodes

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/instanceops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/nodeops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
)

// bulkResult is the result for one node.
type bulkResult struct {
	ID      fleet.NodeID `json:"id"`
	OK      bool         `json:"ok"`
	Changed bool         `json:"changed"`
	Message string       `json:"message"`
	// Instances are what a drain does to those on the node now.
	Instances []drainStep `json:"instances,omitempty"`
	// Start and Stay are the instances that the end of a drain concerns.
	Start []string `json:"start,omitempty"`
	Stay  []string `json:"stay,omitempty"`
	Error any      `json:"error,omitempty"`
}

// bulk carries out an action on several nodes.
func (a *API) bulk(c *gin.Context) {
	var b struct {
		Action nodeops.BulkVerb `json:"action"`
		IDs    []fleet.NodeID   `json:"ids"`
		Labels string           `json:"labels"`
		All    bool             `json:"all"`
		drainFields
	}
	if !server.Bind(c, &b) {
		return
	}
	parallel, ok := server.Number(c, "parallel", instanceops.BulkParallel)
	if !ok {
		return
	}
	dry, drains := server.DryRun(c), b.Action == nodeops.BulkDrain
	for field, given := range map[string]bool{"shutdown": b.Shutdown != nil, "timeout": b.Timeout != nil, "kickMessage": b.KickMessage != nil, "moveStatic": b.MoveStatic != nil} {
		if given && !drains {
			server.Fail(c, errs.Field(field, "has a meaning only with the action drain: remove it"))
			return
		}
	}
	all, err := a.cfg.Operations.BulkNodes(c.Request.Context(), server.Actor(c), nodeops.Bulk{
		Verb: b.Action, Parallel: parallel, DryRun: dry, Drain: b.drain(),
		Selector: nodeops.BulkSelector{IDs: b.IDs, Labels: b.Labels, All: b.All},
	})
	if err != nil {
		server.Fail(c, err)
		return
	}
	out := server.Results[bulkResult]{Action: string(b.Action), DryRun: dry}
	for _, r := range all {
		shown := bulkResult{ID: r.Node, OK: r.Err == nil, Changed: r.Changed}
		switch {
		case r.Err != nil:
			shown.Message, shown.Error = errs.MessageOf(r.Err), wire.ErrorOf(server.RequestID(c), r.Err)
		case !r.Changed:
			shown.Message = "nothing to do"
		}
		if r.Err == nil {
			shown.Instances, _ = stepsOf(a.cfg.Operations.Snapshot(), r.Steps)
			shown.Start, shown.Stay = names(r.Back.Start), names(r.Back.Stay)
		}
		out.Add(shown, r.Err == nil, r.Changed)
	}
	c.JSON(http.StatusOK, out.Complete())
}
