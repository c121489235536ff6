package accounts

import (
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/accountops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store/view"
)

// serviceAccount is an account of a program in an answer.
type serviceAccount struct {
	Name        string            `json:"name"`
	Role        string            `json:"role"`
	Permissions []auth.Permission `json:"permissions"`
	Bindings    []userBinding     `json:"bindings"`
	CreatedAt   time.Time         `json:"createdAt"`
	// Tokens is the number of its API tokens.
	Tokens int `json:"tokens"`
}

// serviceAccountRoutes serve accounts of programs.
func (a *API) serviceAccountRoutes() []server.Route {
	return server.Under("/api/v1/service-accounts",
		server.Get("", server.Needs(auth.UsersView), a.listServiceAccounts),
		server.Post("", server.Needs(auth.UsersCreate), a.createServiceAccount).Rehearses(),
		server.Get("/:name", server.Needs(auth.UsersView), a.getServiceAccount),
		server.Patch("/:name", server.Needs(auth.UsersUpdate), a.patchServiceAccount).Rehearses(),
		server.Delete("/:name", server.Needs(auth.UsersDelete), a.deleteServiceAccount).Rehearses(),
	)
}

func serviceAccountOf(s *view.Snapshot, u *account.User) serviceAccount {
	shown := userOf(s, u)
	out := serviceAccount{Name: u.Username, Role: u.Role, Permissions: shown.Permissions, Bindings: shown.Bindings, CreatedAt: u.CreatedAt}
	for _, t := range s.APITokens.All() {
		if t.Belongs(u) {
			out.Tokens++
		}
	}
	return out
}

func (a *API) listServiceAccounts(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	var all []*account.User
	for _, u := range s.Users.All() {
		if u.Service {
			all = append(all, u)
		}
	}
	server.SendPage(c, all, resource.MediumPage, func(u *account.User) serviceAccount { return serviceAccountOf(s, u) })
}

func (a *API) getServiceAccount(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	u, ok := s.Users.Get(userName(c))
	if !ok || !u.Service {
		server.Fail(c, accountops.NoServiceAccount(c.Param("name")))
		return
	}
	resource.SendRecord(c, serviceAccountOf(s, u), u.ModRev, nil)
}

func (a *API) createServiceAccount(c *gin.Context) {
	var b struct {
		Name *string `json:"name"`
		Role *string `json:"role"`
	}
	if !server.Bind(c, &b) {
		return
	}
	if b.Name == nil {
		server.Fail(c, errs.Field("name", "is missing"))
		return
	}
	role := auth.RoleNone
	resource.Set(&role, b.Role)
	w, ok := a.writeUser(c, userBody{Username: b.Name, Role: &role})
	if !ok {
		return
	}
	w.Service, w.PasswordHash = true, new(string)
	u, err := a.cfg.Operations.CreateUser(c.Request.Context(), server.Actor(c), w)
	switch {
	case err != nil:
		server.Fail(c, err)
	case w.DryRun:
		c.JSON(http.StatusOK, serviceAccountOf(a.cfg.Operations.Snapshot(), &u))
	default:
		resource.SendWritten(c, "/api/v1/service-accounts/"+u.Username, true, u.ModRev, serviceAccountOf(a.cfg.Operations.Snapshot(), &u))
	}
}

// patchServiceAccount gives a service account another role.
func (a *API) patchServiceAccount(c *gin.Context) {
	var b struct {
		Name *string `json:"name"`
		Role *string `json:"role"`
	}
	if !server.Bind(c, &b) {
		return
	}
	if b.Name != nil && strings.ToLower(*b.Name) != userName(c) {
		server.Fail(c, errs.Field("name", "is %q in the body and %q in the path: a service account cannot be renamed", *b.Name, c.Param("name")))
		return
	}
	w, ok := a.writeUser(c, userBody{Role: b.Role})
	if !ok {
		return
	}
	w.Service = true
	u, err := a.cfg.Operations.UpdateUser(c.Request.Context(), server.Actor(c), userName(c), w)
	if err != nil {
		server.Fail(c, err)
		return
	}
	if !w.DryRun {
		server.ETag(c, u.ModRev)
	}
	c.JSON(http.StatusOK, serviceAccountOf(a.cfg.Operations.Snapshot(), &u))
}

func (a *API) deleteServiceAccount(c *gin.Context) {
	w, ok := a.writeUser(c, userBody{})
	if !ok {
		return
	}
	w.Service = true
	gone := a.cfg.Operations.Snapshot()
	err := a.cfg.Operations.DeleteUser(c.Request.Context(), server.Actor(c), userName(c), w)
	if u, ok := gone.Users.Get(userName(c)); err == nil && w.DryRun && ok {
		c.JSON(http.StatusOK, serviceAccountOf(gone, u))
		return
	}
	resource.SendDeleted(c, err)
}
