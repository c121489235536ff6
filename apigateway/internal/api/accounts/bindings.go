package accounts

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/accountops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store/view"
)

// bindingFields are the writable fields of a binding.
type bindingFields struct {
	Role *string `json:"role"`
	// Selector is a label selector. Empty means the whole fleet.
	Selector *string `json:"selector"`
	// Subjects are the names of users.
	Subjects *[]string `json:"subjects"`
}

// binding is a binding in an answer.
type binding struct {
	Name string `json:"name"`
	bindingFields
	// Permissions are what the binding gives.
	Permissions []auth.Permission `json:"permissions"`
	UpdatedBy   string            `json:"updatedBy"`
	UpdatedAt   time.Time         `json:"updatedAt"`
}

// bindingBody is the body of a request.
type bindingBody struct {
	Name *string `json:"name"`
	bindingFields
	Permissions json.RawMessage `json:"permissions"`
	UpdatedBy   json.RawMessage `json:"updatedBy"`
	UpdatedAt   json.RawMessage `json:"updatedAt"`
}

// bindingRoutes serve bindings.
func (a *API) bindingRoutes() []server.Route {
	return server.Under("/api/v1/bindings",
		server.Get("", server.Needs(auth.RolesView), a.listBindings),
		server.Get("/:name", server.Needs(auth.RolesView), a.getBinding),
		server.Put("/:name", server.Needs(auth.RolesManage), a.putBinding).Rehearses().Makes(),
		server.Delete("/:name", server.Needs(auth.RolesManage), a.deleteBinding).Rehearses(),
	)
}

func bindingFieldsOf(subjects accountops.Subjects, b *account.Binding) bindingFields {
	return bindingFields{Role: &b.Role, Selector: new(b.Selector.String()), Subjects: new(subjects.Of(b))}
}

func bindingOf(s *view.Snapshot, subjects accountops.Subjects, b *account.Binding) binding {
	return binding{
		Name: b.Name, bindingFields: bindingFieldsOf(subjects, b), Permissions: append([]auth.Permission{}, auth.GrantedBy(s, *b)...), UpdatedBy: b.By, UpdatedAt: b.At,
	}
}

func (a *API) listBindings(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	all := make([]*account.Binding, 0, s.Bindings.Len())
	for _, b := range s.Bindings.All() {
		all = append(all, b)
	}
	subjects := accountops.SubjectsOf(s)
	server.SendPage(c, all, resource.SmallPage, func(b *account.Binding) binding { return bindingOf(s, subjects, b) })
}

func (a *API) getBinding(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	b, ok := s.Bindings.Get(c.Param("name"))
	if !ok {
		server.Fail(c, accountops.NoBinding(c.Param("name")))
		return
	}
	resource.SendRecord(c, bindingOf(s, accountops.SubjectsOf(s), b), b.ModRev, nil)
}

// putBinding creates or replaces a binding.
func (a *API) putBinding(c *gin.Context) {
	var b bindingBody
	name, rev, ok := resource.BindRecord(c, "binding", &b, func() *string { return b.Name })
	if !ok {
		return
	}
	who, _ := server.Identity(c)
	w := accountops.BindingWrite{Name: name, IfMatch: rev, DryRun: server.DryRun(c), May: who.Permissions}
	resource.Set(&w.Role, b.Role)
	resource.Set(&w.Selector, b.Selector)
	resource.Set(&w.Subjects, b.Subjects)
	done, err := a.cfg.Operations.WriteBinding(c.Request.Context(), server.Actor(c), w)
	if err != nil {
		server.Fail(c, err)
		return
	}
	s := a.cfg.Operations.Snapshot()
	subjects := accountops.SubjectsOf(s)
	shown := bindingOf(s, subjects, &done.After)
	if w.DryRun {
		before := &account.Binding{}
		if done.Before != nil {
			before = done.Before
		}
		c.JSON(http.StatusOK, resource.DryRun("binding", name, done.Before != nil, resource.Differences(bindingFieldsOf(subjects, before), shown.bindingFields)))
		return
	}
	resource.SendPut(c, done.Before == nil, done.After.ModRev, shown)
}

func (a *API) deleteBinding(c *gin.Context) {
	who, _ := server.Identity(c)
	resource.DeleteRecord(c, func(ctx context.Context, by txn.Actor, name string, ifMatch int64, dryRun bool) error {
		return a.cfg.Operations.DeleteBinding(ctx, by, name, who.Permissions, ifMatch, dryRun)
	}, gin.H{"dryRun": true, "action": "delete", "binding": c.Param("name"), "diff": []resource.FieldChange{}})
}
