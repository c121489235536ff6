package rest

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// happening is one change of an object.
type happening struct {
	ID string `json:"id"`
	// Revision is the store's after the change.
	Revision int64     `json:"revision"`
	At       time.Time `json:"at"`
	By       string    `json:"by"`
	Action   string    `json:"action"`
	Details  string    `json:"details"`
	// Diff are the fields that changed, in order of name. What not everybody is shown is
	// *** before and after.
	Diff []fieldChange `json:"diff"`
	// Truncated is true when the change was too large to be kept: Diff is empty then.
	Truncated bool `json:"truncated"`
}

// wasSo is an object as it was.
type wasSo struct {
	Kind operate.ObjectKind `json:"kind"`
	Name string             `json:"name"`
	// Object are its fields.
	Object map[string]any `json:"object"`
	// Revision, At, By and Action are of the change that made it so; null when that was before
	// the audit begins.
	Revision *int64     `json:"revision"`
	At       *time.Time `json:"at"`
	By       *string    `json:"by"`
	Action   *string    `json:"action"`
}

// historyRoutes are what became of objects. Each kind's is for those who may see the kind.
func (a *API) historyRoutes() []server.Route {
	var out []server.Route
	for kind, permission := range map[operate.ObjectKind]auth.Permission{
		operate.GroupObject: auth.GroupsView, operate.InstanceObject: auth.InstancesView, operate.NodeObject: auth.NodesView,
		operate.QuotaObject: auth.QuotasView, operate.UserObject: auth.UsersView, operate.RoleObject: auth.RolesView,
		operate.CatalogObject: auth.CatalogView, operate.SecretObject: auth.SystemSettings, operate.SourceObject: auth.TemplatesView,
	} {
		out = append(out, server.Get("/api/v1/history/"+string(kind)+"/:name", server.Needs(permission), a.becoming(kind)))
	}
	return out
}

// becoming answers with an object's changes, newest first, or with ?at= how it was then.
func (a *API) becoming(kind operate.ObjectKind) gin.HandlerFunc {
	return func(c *gin.Context) {
		if c.Query("at") != "" {
			a.past(c, kind)
			return
		}
		server.SendPart(c, pageFew, func(from, n int) ([]fleet.AuditEntry, int, error) {
			return a.cfg.Operations.History(c.Request.Context(), kind, c.Param("name"), from, n)
		}, func(e fleet.AuditEntry) happening { return happeningOf(e, server.Allowed(c, auth.GroupsEnv)) })
	}
}

// past answers how an object was.
func (a *API) past(c *gin.Context, kind operate.ObjectKind) {
	var at operate.Moment
	text := c.Query("at")
	var err error
	if at.Revision, err = strconv.ParseInt(text, 10, 64); err != nil || at.Revision <= 0 {
		if at.Time, err = time.Parse(time.RFC3339, text); err != nil {
			server.Fail(c, &errs.Error{Kind: errs.Malformed, Field: "at", Message: "at must be a revision, or a time such as 2026-01-02T15:04:05Z"})
			return
		}
		at.Revision = 0
	}
	was, err := a.cfg.Operations.Past(c.Request.Context(), kind, c.Param("name"), at)
	if err != nil {
		server.Fail(c, err)
		return
	}
	out := wasSo{Kind: kind, Name: c.Param("name"), Object: was.Fields}
	if kind == operate.GroupObject {
		if kept, err := json.Marshal(was.Fields); err == nil { // it came from JSON
			out.Object = recordedGroup(kept)
			delete(out.Object, "truncated")
			if !server.Allowed(c, auth.GroupsEnv) {
				delete(out.Object, "env")
			}
		}
	}
	if e := was.Since; e != nil {
		out.Revision, out.At, out.By, out.Action = &e.ModRev, &e.CreatedAt, &e.Username, &e.Action
	}
	c.JSON(http.StatusOK, out)
}

// happeningOf shows a change; env says whether the caller sees groups' environment.
func happeningOf(e fleet.AuditEntry, env bool) happening {
	out := happening{
		ID: e.ID, Revision: e.ModRev, At: e.CreatedAt, By: e.Username, Action: e.Action, Details: e.Details, Diff: []fieldChange{},
	}
	before, after := auditedFields(e, env)
	from, to := asMap(before), asMap(after)
	if out.Truncated = from["truncated"] == true || to["truncated"] == true; out.Truncated {
		return out
	}
	names := maps.Clone(from)
	if names == nil {
		names = map[string]any{}
	}
	maps.Copy(names, to)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		told := e.ResourceType == string(operate.GroupObject) || from[name] == fleet.Hidden
		if told || !equalJSON(from[name], to[name]) {
			out.Diff = append(out.Diff, fieldChange{Field: name, From: from[name], To: to[name]})
		}
	}
	return out
}
