package rest

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
)

// role is a role as it is shown.
type role struct {
	Name        string            `json:"name"`
	Permissions []auth.Permission `json:"permissions"`
	BuiltIn     bool              `json:"builtIn"`
	// UserCount is how many users have it.
	UserCount int `json:"userCount"`
}

// roleRoutes are roles.
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

// shownPermissions are a role's, a list also where there are none.
func shownPermissions(r auth.Role) []auth.Permission {
	return append([]auth.Permission{}, r.Permissions...)
}

// roleETag tells a role's revision; a built-in role that nobody changed has none.
func roleETag(c *gin.Context, r auth.Role) {
	if r.ModRev != 0 {
		server.ETag(c, r.ModRev)
	}
}

// roleName is the role a path names.
func roleName(c *gin.Context) string { return strings.ToUpper(c.Param("name")) }

func (a *API) listRoles(c *gin.Context) {
	s := a.snapshot()
	holders := operate.Holders(s)
	server.SendPage(c, auth.Roles(s), pageFew, func(r auth.Role) role { return roleOf(r, holders) })
}

func (a *API) getRole(c *gin.Context) {
	s := a.snapshot()
	r, ok := auth.RoleOf(s, roleName(c))
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "there is no role %s", c.Param("name")))
		return
	}
	roleETag(c, r)
	c.JSON(http.StatusOK, roleOf(r, operate.Holders(s)))
}

// roleBody is what a client sends; builtIn and userCount may come back as they were read.
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
	a.writeRole(c, operate.RoleWrite{Name: strings.ToUpper(*b.Name), Create: true}, b)
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
	a.writeRole(c, operate.RoleWrite{Name: roleName(c)}, b)
}

func (a *API) writeRole(c *gin.Context, w operate.RoleWrite, b roleBody) {
	if b.Permissions == nil {
		server.Fail(c, errs.Field("permissions", "is missing: it has all that the role may do"))
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
	c.JSON(status, roleOf(r, operate.Holders(a.snapshot())))
}

func (a *API) deleteRole(c *gin.Context) {
	s := a.snapshot()
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
		c.JSON(http.StatusOK, roleOf(r, operate.Holders(s)))
	default:
		c.Status(http.StatusNoContent)
	}
}
