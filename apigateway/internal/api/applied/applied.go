// Package applied serves the documents that declarative clients applied last.
package applied

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/appliedops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/applied"
)

// API holds the handlers.
type API struct{ operations *ops.Operations }

// New returns the handlers.
func New(o *ops.Operations) *API { return &API{operations: o} }

// mark is an applied document in a list.
type mark struct {
	Kind      applied.Kind `json:"kind"`
	Name      string       `json:"name"`
	AppliedAt time.Time    `json:"appliedAt"`
	AppliedBy string       `json:"appliedBy"`
}

// document is an applied document in an answer.
type document struct {
	mark
	Document map[string]any `json:"document"`
}

// body is the body of a request. It accepts the read-only fields so that a client can send back what it
// read.
type body struct {
	Kind      *string         `json:"kind"`
	Name      *string         `json:"name"`
	Document  json.RawMessage `json:"document"`
	AppliedAt json.RawMessage `json:"appliedAt"`
	AppliedBy json.RawMessage `json:"appliedBy"`
}

// Routes returns the routes of the package. The permission depends on the kind, see permissionsOf.
func (a *API) Routes() []server.Route {
	return server.Under("/api/v1/applied",
		server.Get("", server.Anyone, a.list),
		server.Get("/:kind/:name", server.Anyone, a.get),
		server.Put("/:kind/:name", server.Anyone, a.put).Rehearses().Makes(),
		server.Delete("/:kind/:name", server.Anyone, a.remove).Rehearses(),
	)
}

// permissionsOf returns what a caller needs to read and to change objects of a kind.
func permissionsOf(kind applied.Kind) (view, update auth.Permission) {
	switch kind {
	case applied.Group, applied.Schedule, applied.Overlay:
		return auth.GroupsView, auth.GroupsUpdate
	case applied.Network:
		return auth.NetworksView, auth.NetworksUpdate
	case applied.Quota:
		return auth.QuotasView, auth.QuotasManage
	case applied.Notice:
		return auth.SystemSettings, auth.SystemSettings
	case applied.Role, applied.Binding:
		return auth.RolesView, auth.RolesManage
	case applied.TemplateSource:
		return auth.TemplatesView, auth.SystemSettings
	case applied.Catalog:
		return auth.CatalogView, auth.CatalogManage
	}
	return "", ""
}

// kindOf returns the kind that the path names. If ok is false, it answered the request.
func kindOf(c *gin.Context, update bool) (kind applied.Kind, ok bool) {
	kind = applied.Kind(c.Param("kind"))
	if !kind.Known() {
		server.Fail(c, errs.New(errs.NotFound, "no documents are stored for the kind %q: use one of %v", txn.Clip(string(kind)), applied.Kinds()))
		return kind, false
	}
	needed, change := permissionsOf(kind)
	if update {
		needed = change
	}
	return kind, may(c, needed)
}

// may reports whether the caller has a permission. If not, it answered the request.
func may(c *gin.Context, p auth.Permission) bool {
	who, ok := server.Identity(c)
	if ok && !who.Can(p) {
		server.Fail(c, errs.New(errs.Denied, "%s", who.Lacks(p)))
		return false
	}
	return ok
}

func markOf(m *applied.Mark) mark {
	return mark{Kind: m.Kind, Name: m.Name, AppliedAt: m.At, AppliedBy: m.By}
}

// documentOf shows a record. The environment of a group is absent for callers without groups.env.
func documentOf(c *gin.Context, r applied.Record) document {
	out := document{mark: markOf(&r.Mark), Document: txn.ToMap(r.Document)}
	if r.Kind == applied.Group && !server.Allowed(c, auth.GroupsEnv) {
		delete(out.Document, "env")
	}
	return out
}

// list lists the documents of the kinds that the caller may view.
func (a *API) list(c *gin.Context) {
	only := applied.Kind(c.Query("kind"))
	if only != "" && !only.Known() {
		server.Fail(c, errs.Field("kind", "must be one of %v, not %q", applied.Kinds(), txn.Clip(string(only))))
		return
	}
	if needed, _ := permissionsOf(only); only != "" && !may(c, needed) {
		return
	}
	s := a.operations.Snapshot()
	all := make([]*applied.Mark, 0, s.Applied.Len())
	for _, m := range s.Applied.All() {
		needed, _ := permissionsOf(m.Kind)
		if (only == "" || m.Kind == only) && server.Allowed(c, needed) {
			all = append(all, m)
		}
	}
	server.SendPage(c, all, resource.LargePage, markOf)
}

func (a *API) get(c *gin.Context) {
	kind, ok := kindOf(c, false)
	if !ok {
		return
	}
	r, err := a.operations.ReadApplied(c.Request.Context(), kind, c.Param("name"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	resource.SendRecord(c, documentOf(c, r), r.ModRev, nil)
}

func (a *API) put(c *gin.Context) {
	kind, ok := kindOf(c, true)
	if !ok {
		return
	}
	var b body
	name, rev, ok := resource.BindRecord(c, "document", &b, func() *string { return b.Name })
	if !ok {
		return
	}
	given, err := b.fields(kind)
	if err != nil {
		server.Fail(c, err)
		return
	}
	w := appliedops.AppliedWrite{
		Kind: kind, Name: name, Document: given, KeepEnv: !server.Allowed(c, auth.GroupsEnv), IfMatch: rev, DryRun: server.DryRun(c),
	}
	done, err := a.operations.WriteApplied(c.Request.Context(), server.Actor(c), w)
	if err != nil {
		server.Fail(c, err)
		return
	}
	if w.DryRun {
		action := "update"
		switch {
		case done.Before == nil:
			action = "create"
		case bytes.Equal(done.Before.Document, done.After.Document):
			action = "none"
		}
		c.JSON(http.StatusOK, dryRun(action, kind, done.After.Name))
		return
	}
	resource.SendWritten(c, fmt.Sprintf("/api/v1/applied/%s/%s", kind, done.After.Name), done.Before == nil, done.After.ModRev, documentOf(c, done.After))
}

func dryRun(action string, kind applied.Kind, name string) gin.H {
	return gin.H{"dryRun": true, "action": action, "kind": kind, "name": name}
}

// fields decodes the document. Numbers keep their digits.
func (b body) fields(kind applied.Kind) (out map[string]any, err error) {
	if b.Kind != nil && *b.Kind != string(kind) {
		return nil, errs.Field("kind", "is %q in the body and %q in the path", txn.Clip(*b.Kind), kind)
	}
	dec := json.NewDecoder(bytes.NewReader(b.Document))
	dec.UseNumber()
	if dec.Decode(&out) != nil || out == nil {
		return nil, errs.Field("document", "must be a JSON object with the fields of the %s", kind)
	}
	return out, nil
}

func (a *API) remove(c *gin.Context) {
	kind, ok := kindOf(c, true)
	if !ok {
		return
	}
	name := appliedops.Canonical(kind, c.Param("name"))
	rev, err := server.IfMatch(c)
	if err == nil {
		err = a.operations.DeleteApplied(c.Request.Context(), server.Actor(c), kind, name, rev, server.DryRun(c))
	}
	if err == nil && server.DryRun(c) {
		c.JSON(http.StatusOK, dryRun("delete", kind, name))
		return
	}
	resource.SendDeleted(c, err)
}
