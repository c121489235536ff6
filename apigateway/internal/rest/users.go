package rest

import (
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// user is a user as this dialect shows it. What this system does not know of
// users is null.
type user struct {
	ID            string            `json:"id"`
	Username      string            `json:"username"`
	Email         string            `json:"email"`
	Role          string            `json:"role"`
	Permissions   []auth.Permission `json:"permissions"`
	AvatarURL     *string           `json:"avatarUrl"`
	MinecraftUUID *string           `json:"minecraftUuid"`
	MinecraftName *string           `json:"minecraftName"`
	CreatedAt     *time.Time        `json:"createdAt"`
}

// userRoutes are users.
func (a *API) userRoutes() []server.Route {
	return server.Under("/api/v1/users",
		server.Get("", server.Needs(auth.UsersView), a.listUsers),
		server.Post("", server.Needs(auth.UsersCreate), a.createUser).Rehearses(),
		server.Get("/:name", server.Needs(auth.UsersView), a.getUser),
		server.Patch("/:name", server.Anyone, a.patchUser).Rehearses(), // users.update, or a new name for oneself
		server.Delete("/:name", server.Needs(auth.UsersDelete), a.deleteUser).Rehearses(),
	)
}

func userOf(s *view.Snapshot, u *fleet.User) user {
	role, _ := auth.RoleOf(s, u.Role)
	out := user{ID: u.Username, Username: u.Username, Email: u.Email, Role: u.Role, Permissions: shownPermissions(role), CreatedAt: &u.CreatedAt}
	out.AvatarURL = avatarURL(u)
	if u.MinecraftUUID != "" {
		out.MinecraftUUID, out.MinecraftName = new(string(u.MinecraftUUID)), &u.MinecraftName
	}
	return out
}

// userName is the user a path names.
func userName(c *gin.Context) string { return strings.ToLower(c.Param("name")) }

func (a *API) listUsers(c *gin.Context) {
	s := a.snapshot()
	all := make([]*fleet.User, 0, s.Users.Len())
	for _, u := range s.Users.All() {
		all = append(all, u)
	}
	server.SendPage(c, all, pageSome, func(u *fleet.User) user { return userOf(s, u) })
}

func (a *API) getUser(c *gin.Context) {
	s := a.snapshot()
	u, ok := s.Users.Get(userName(c))
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "there is no user %s", c.Param("name")))
		return
	}
	server.ETag(c, u.ModRev)
	c.JSON(http.StatusOK, userOf(s, u))
}

// userBody is what a client sends.
type userBody struct {
	Username *string `json:"username"`
	Email    *string `json:"email"`
	Role     *string `json:"role"`
	Password *string `json:"password"`
	// EndAPITokens ends the user's API tokens together with another password.
	EndAPITokens bool `json:"endApiTokens"`
}

// writeUser is the body as what is to be done; ok is false when the request was answered.
func (a *API) writeUser(c *gin.Context, b userBody) (w operate.UserWrite, ok bool) {
	who, _ := server.Identity(c)
	w = operate.UserWrite{Email: b.Email, EndTokens: b.EndAPITokens, May: who.Permissions, DryRun: server.DryRun(c)}
	if b.Username != nil {
		w.Name = new(strings.ToLower(*b.Username))
	}
	if b.Role != nil {
		w.Role = new(strings.ToUpper(*b.Role))
	}
	var err error
	if w.IfMatch, err = server.IfMatch(c); err == nil && b.Password != nil {
		var hash string
		hash, err = a.cfg.Auth.HashPassword(c.Request.Context(), "password", *b.Password)
		w.PasswordHash = &hash
	}
	if err != nil {
		server.Fail(c, err)
	}
	return w, err == nil
}

func (a *API) createUser(c *gin.Context) {
	var b userBody
	if !server.Bind(c, &b) {
		return
	}
	for _, required := range []struct {
		field string
		value *string
	}{{"username", b.Username}, {"password", b.Password}, {"role", b.Role}} {
		if required.value == nil {
			server.Fail(c, errs.Field(required.field, "is missing"))
			return
		}
	}
	w, ok := a.writeUser(c, b)
	if !ok {
		return
	}
	u, err := a.cfg.Operations.CreateUser(c.Request.Context(), server.Actor(c), w)
	switch {
	case err != nil:
		server.Fail(c, err)
	case w.DryRun:
		c.JSON(http.StatusOK, userOf(a.snapshot(), &u))
	default:
		server.ETag(c, u.ModRev)
		c.Header("Location", "/api/v1/users/"+u.Username)
		c.JSON(http.StatusCreated, userOf(a.snapshot(), &u))
	}
}

// patchUser changes a user; who may not change users may give themselves another name.
func (a *API) patchUser(c *gin.Context) {
	var b userBody
	if !server.Bind(c, &b) {
		return
	}
	who, _ := server.Identity(c)
	name := userName(c)
	if !who.Can(auth.UsersUpdate) && (name != who.User || b.Email != nil || b.Role != nil || b.Password != nil || who.TokenID != "") {
		server.Fail(c, errs.New(errs.Denied, "%s; without it only your own username can be changed, logged in", who.Lacks(auth.UsersUpdate)))
		return
	}
	if who.TokenID != "" && name == who.User && b.Password != nil {
		server.Fail(c, errs.New(errs.Denied, "an API token cannot change its user's password: log in"))
		return
	}
	w, ok := a.writeUser(c, b)
	if !ok {
		return
	}
	u, err := a.cfg.Operations.UpdateUser(c.Request.Context(), server.Actor(c), name, w)
	if err == nil && !w.DryRun {
		server.ETag(c, u.ModRev)
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	out := changedUser{user: userOf(a.snapshot(), &u)}
	if own := name == who.User && who.TokenID == ""; own && !w.DryRun && u.Epoch != who.Credential().Epoch {
		out.session = new(session)
		if err := a.tokensInto(c, out.session, &u, a.nextLogin(c, &u)); err != nil {
			server.Fail(c, err)
			return
		}
	}
	c.JSON(http.StatusOK, out)
}

// changedUser is a user after a change, with the tokens of the next login for who has changed
// their own password or name: that ended the one they asked with.
type changedUser struct {
	user
	*session
}

func (a *API) deleteUser(c *gin.Context) {
	w, ok := a.writeUser(c, userBody{})
	if !ok {
		return
	}
	gone := a.snapshot()
	err := a.cfg.Operations.DeleteUser(c.Request.Context(), server.Actor(c), userName(c), w)
	u, ok := gone.Users.Get(userName(c))
	switch {
	case err != nil:
		server.Fail(c, err)
	case w.DryRun && ok:
		c.JSON(http.StatusOK, userOf(gone, u))
	default:
		if ok && u.Avatar.SHA256 != "" {
			a.dropAvatars(c, u.ID())
		}
		c.Status(http.StatusNoContent)
	}
}
