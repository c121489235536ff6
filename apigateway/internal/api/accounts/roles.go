package accounts

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/accountops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
)

// role is a role in an answer.
type role struct {
	Name        string            `json:"name"`
	Permissions []auth.Permission `json:"permissions"`
	BuiltIn     bool              `json:"builtIn"`
	// UserCount is the number of users with the role.
	UserCount int `json:"userCount"`
}

func (a *API) roleRoutes() []server.Route {
	return server.Under("/api/v1/roles",
		server.Get("", server.Needs(auth.RolesView), a.listRoles),
		server.Post("", server.Needs(auth.RolesManage), a.createRole).Rehearses(),
		server.Get("/:name", server.Needs(auth.RolesView), a.getRole),
		server.Patch("/:name", server.Needs(auth.RolesManage), a.patchRole).Rehearses(),
		server.Delete("/:name", server.Needs(auth.RolesManage), a.deleteRole).Rehearses(),
	)
}

func roleOf(r auth.Role, holders map[string]int) role {
	return role{Name: r.Name, Permissions: shownPermissions(r), BuiltIn: r.BuiltIn, UserCount: holders[r.Name]}
}

// shownPermissions returns the permissions of a role. The result is never nil.
func shownPermissions(r auth.Role) []auth.Permission {
	return append([]auth.Permission{}, r.Permissions...)
}

// roleETag sets the ETag. An unchanged built-in role has none.
func roleETag(c *gin.Context, r auth.Role) {
	if r.ModRev != 0 {
		server.ETag(c, r.ModRev)
	}
}

// roleName returns the role that the path names.
func roleName(c *gin.Context) string { return strings.ToUpper(c.Param("name")) }

func (a *API) listRoles(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	holders := accountops.Holders(s)
	server.SendPage(c, auth.Roles(s), resource.SmallPage, func(r auth.Role) role { return roleOf(r, holders) })
}

func (a *API) getRole(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	r, ok := auth.RoleOf(s, roleName(c))
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "there is no role %s", c.Param("name")))
		return
	}
	roleETag(c, r)
	c.JSON(http.StatusOK, roleOf(r, accountops.Holders(s)))
}

// roleBody is the body of a request. It accepts the read-only fields so that a client can send back
// what it read.
type roleBody struct {
	Name        *string            `json:"name"`
	Permissions *[]auth.Permission `json:"permissions"`
	BuiltIn     *bool              `json:"builtIn"`
	UserCount   *int               `json:"userCount"`
}

func (a *API) createRole(c *gin.Context) {
	var b roleBody
	if !server.Bind(c, &b) {
		return
	}
	if b.Name == nil {
		server.Fail(c, errs.Field("name", "is missing"))
		return
	}
	a.writeRole(c, accountops.RoleWrite{Name: strings.ToUpper(*b.Name), Create: true}, b)
}

func (a *API) patchRole(c *gin.Context) {
	var b roleBody
	if !server.Bind(c, &b) {
		return
	}
	if b.Name != nil && strings.ToUpper(*b.Name) != roleName(c) {
		server.Fail(c, errs.Field("name", "is %q in the body and %q in the path: a role cannot be renamed", *b.Name, c.Param("name")))
		return
	}
	a.writeRole(c, accountops.RoleWrite{Name: roleName(c)}, b)
}

func (a *API) writeRole(c *gin.Context, w accountops.RoleWrite, b roleBody) {
	if b.Permissions == nil {
		server.Fail(c, errs.Field("permissions", "is missing: list all permissions of the role"))
		return
	}
	var err error
	if w.IfMatch, err = server.IfMatch(c); err != nil {
		server.Fail(c, err)
		return
	}
	who, _ := server.Identity(c)
	w.Permissions, w.May, w.DryRun = *b.Permissions, who.Permissions, server.DryRun(c)
	r, err := a.cfg.Operations.WriteRole(c.Request.Context(), server.Actor(c), w)
	if err != nil {
		server.Fail(c, err)
		return
	}
	status := http.StatusOK
	if !w.DryRun {
		roleETag(c, r)
	}
	if w.Create && !w.DryRun {
		status = http.StatusCreated
		c.Header("Location", "/api/v1/roles/"+r.Name)
	}
	c.JSON(status, roleOf(r, accountops.Holders(a.cfg.Operations.Snapshot())))
}

func (a *API) deleteRole(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	who, _ := server.Identity(c)
	rev, err := server.IfMatch(c)
	if err == nil {
		err = a.cfg.Operations.DeleteRole(c.Request.Context(), server.Actor(c), roleName(c), who.Permissions, rev, server.DryRun(c))
	}
	r, ok := auth.RoleOf(s, roleName(c))
	switch {
	case err != nil:
		server.Fail(c, err)
	case server.DryRun(c) && ok:
		c.JSON(http.StatusOK, roleOf(r, accountops.Holders(s)))
	default:
		c.Status(http.StatusNoContent)
	}
}
