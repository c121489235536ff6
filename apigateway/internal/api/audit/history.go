// Package audit serves the audit log and the history of single objects.
package audit

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/auditops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store/view"
)

// API holds the handlers.
type API struct{ operations *ops.Operations }

// New returns the handlers.
func New(o *ops.Operations) *API { return &API{operations: o} }

// change is a change of an object.
type change struct {
	ID string `json:"id"`
	// Revision is etcd's revision after the change.
	Revision int64     `json:"revision"`
	At       time.Time `json:"at"`
	By       string    `json:"by"`
	Action   string    `json:"action"`
	Details  string    `json:"details"`
	// Diff are the changed fields, sorted by name. Values that the caller must not see are *** on
	// both sides.
	Diff []resource.FieldChange `json:"diff"`
	// Truncated is true if the change was too large to store. Diff is then empty.
	Truncated bool `json:"truncated"`
}

// pastObject is an object at an earlier time.
type pastObject struct {
	Kind   auditops.ObjectKind `json:"kind"`
	Name   string              `json:"name"`
	Object map[string]any      `json:"object"`
	// Revision, At, By and Action describe the change that led to it. They are null if that change
	// is older than the audit log.
	Revision *int64     `json:"revision"`
	At       *time.Time `json:"at"`
	By       *string    `json:"by"`
	Action   *string    `json:"action"`
}

// Routes returns the routes of the audit log and of the history of objects. The history of an object
// requires the permission to view it.
func (a *API) Routes() []server.Route {
	out := []server.Route{server.Get("/api/v1/audit", server.Needs(auth.AuditView), a.listAudit)}
	for kind, permission := range map[auditops.ObjectKind]auth.Permission{
		auditops.GroupObject: auth.GroupsView, auditops.InstanceObject: auth.InstancesView, auditops.NodeObject: auth.NodesView,
		auditops.QuotaObject: auth.QuotasView, auditops.UserObject: auth.UsersView, auditops.RoleObject: auth.RolesView, auditops.BindingObject: auth.RolesView,
		auditops.CatalogObject: auth.CatalogView, auditops.SecretObject: auth.SystemSettings, auditops.SourceObject: auth.TemplatesView,
		auditops.ScheduleObject: auth.GroupsView, auditops.OverlayObject: auth.GroupsView, auditops.NoticeObject: auth.SystemSettings,
	} {
		r := server.Get("/api/v1/history/"+string(kind)+"/:name", server.Needs(permission), a.history(kind))
		switch kind {
		case auditops.GroupObject:
			r = r.In(server.GroupInPath)
		case auditops.InstanceObject:
			r = r.In(instanceInPath)
		}
		out = append(out, r)
	}
	return out
}

// instanceInPath locates an instance that is in the path as :name.
var instanceInPath = &server.Locator{What: "instance", Group: func(s *view.Snapshot, c *gin.Context) (fleet.GroupName, bool) {
	i, ok := s.Find(c.Param("name"))
	if !ok {
		return "", false
	}
	return i.Intent.Group, true
}}

// history answers with the changes of an object, newest first, or with ?at= with the object at that
// time.
func (a *API) history(kind auditops.ObjectKind) gin.HandlerFunc {
	return func(c *gin.Context) {
		if c.Query("at") != "" {
			a.past(c, kind)
			return
		}
		server.SendPart(c, resource.SmallPage, func(from, n int) ([]account.AuditEntry, int, error) {
			return a.operations.History(c.Request.Context(), kind, c.Param("name"), from, n)
		}, func(e account.AuditEntry) change { return changeOf(e, server.Allowed(c, auth.GroupsEnv)) })
	}
}

// past answers with an object at an earlier time.
func (a *API) past(c *gin.Context, kind auditops.ObjectKind) {
	var at auditops.Moment
	text := c.Query("at")
	var err error
	if at.Revision, err = strconv.ParseInt(text, 10, 64); err != nil || at.Revision <= 0 {
		if at.Time, err = time.Parse(time.RFC3339, text); err != nil {
			server.Fail(c, &errs.Error{Kind: errs.Malformed, Field: "at", Message: "at must be a revision, or a time such as 2026-01-02T15:04:05Z"})
			return
		}
		at.Revision = 0
	}
	was, err := a.operations.Past(c.Request.Context(), kind, c.Param("name"), at)
	if err != nil {
		server.Fail(c, err)
		return
	}
	out := pastObject{Kind: kind, Name: c.Param("name"), Object: was.Fields}
	if kind == auditops.GroupObject {
		if kept, err := json.Marshal(was.Fields); err == nil { // unreachable: the fields were decoded from JSON
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

// changeOf shows a change. env is true if the caller may see the environment of groups.
func changeOf(e account.AuditEntry, env bool) change {
	out := change{
		ID: e.ID, Revision: e.ModRev, At: e.CreatedAt, By: e.Username, Action: e.Action, Details: e.Details, Diff: []resource.FieldChange{},
	}
	before, after := auditedFields(e, env)
	from, to := resource.AsMap(before), resource.AsMap(after)
	if out.Truncated = from["truncated"] == true || to["truncated"] == true; out.Truncated {
		return out
	}
	names := maps.Clone(from)
	if names == nil {
		names = map[string]any{}
	}
	maps.Copy(names, to)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		told := e.ResourceType == string(auditops.GroupObject) || from[name] == content.Hidden
		if told || !resource.EqualJSON(from[name], to[name]) {
			out.Diff = append(out.Diff, resource.FieldChange{Field: name, From: from[name], To: to[name]})
		}
	}
	return out
}
