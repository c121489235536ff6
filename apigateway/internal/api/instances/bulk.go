package instances

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/instanceops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/wire"
)

// bulkPermissions are those of the routes for one instance.
var bulkPermissions = map[instanceops.BulkVerb]auth.Permission{
	instanceops.BulkStop: auth.InstancesStop, instanceops.BulkKill: auth.InstancesStop, instanceops.BulkRestart: auth.InstancesStop,
	instanceops.BulkStart: auth.GroupsStart, instanceops.BulkCommand: auth.InstancesCommand, instanceops.BulkDelete: auth.InstancesDelete,
}

// bulkResult is the result for one instance.
type bulkResult struct {
	ID    string           `json:"id"`
	UID   fleet.InstanceID `json:"uid,omitempty"` // absent if there is no such instance
	Group fleet.GroupName  `json:"group,omitempty"`
	Node  fleet.NodeID     `json:"node,omitempty"`
	// State and Players are from before the action.
	State   string       `json:"state,omitempty"`
	Players *int         `json:"playerCount,omitempty"`
	OK      bool         `json:"ok"`
	Changed bool         `json:"changed"`
	Reason  fleet.Reason `json:"reason,omitempty"`
	Message string       `json:"message"`
	Waiting fleet.NodeID `json:"waitingForNode,omitempty"`
	Error   any          `json:"error,omitempty"`
}

// bulk carries out an action on several instances.
func (a *API) bulk(c *gin.Context) {
	var b struct {
		Action  instanceops.BulkVerb `json:"action"`
		Command string               `json:"command"`
		IDs     []string             `json:"ids"`
		Groups  []fleet.GroupName    `json:"groups"`
		Node    fleet.NodeID         `json:"node"`
		Labels  string               `json:"labels"`
		All     bool                 `json:"all"`
	}
	if !server.Bind(c, &b) {
		return
	}
	needed := []auth.Permission{auth.InstancesView}
	if p, ok := bulkPermissions[b.Action]; ok {
		needed = append(needed, p)
		if who, _ := server.Identity(c); !who.Somewhere(p) {
			server.Fail(c, errs.New(errs.Denied, "%s", who.Lacks(p)))
			return
		}
	}
	parallel, ok := server.Number(c, "parallel", instanceops.BulkParallel)
	if !ok {
		return
	}
	dry, s := server.DryRun(c), a.cfg.Operations.Snapshot()
	all, err := a.cfg.Operations.BulkInstances(c.Request.Context(), server.Actor(c), instanceops.Bulk{
		Verb: b.Action, Command: b.Command, Parallel: parallel, DryRun: dry,
		Selector: instanceops.BulkSelector{IDs: b.IDs, Groups: b.Groups, Node: b.Node, Labels: b.Labels, All: b.All},
		Sees:     server.Sight(c, needed...),
	})
	if err != nil {
		server.Fail(c, err)
		return
	}
	out := server.Results[bulkResult]{Action: string(b.Action), DryRun: dry}
	for _, r := range all {
		shown := a.bulkResultOf(s, b.Action, r)
		if r.Err != nil {
			shown.Error = wire.ErrorOf(server.RequestID(c), r.Err)
		}
		out.Add(shown, r.Err == nil, r.Changed)
	}
	c.JSON(http.StatusOK, out.Complete())
}

func (a *API) bulkResultOf(s *view.Snapshot, v instanceops.BulkVerb, r instanceops.BulkResult) bulkResult {
	out := bulkResult{ID: r.Ref, OK: r.Err == nil, Changed: r.Changed, Waiting: r.Waiting, Message: errs.MessageOf(r.Err)}
	if r.Instance == nil {
		return out
	}
	was := InstanceOf(s, r.Instance, a.cfg.Operations.Now())
	out.ID, out.UID, out.Group, out.Node, out.State, out.Players = was.ID, was.UID, was.Group, was.Node, was.State, was.Players
	if r.Err != nil {
		return out
	}
	out.Message = "it " + r.Instance.State().Text()
	switch {
	case !r.Changed:
		out.Message += ": nothing to do"
	case r.Waiting != "":
		out.Message = "node " + string(r.Waiting) + " is not connected: the request is recorded and runs when the node reconnects"
		fallthrough
	default:
		out.Reason = v.Reason()
	}
	return out
}
