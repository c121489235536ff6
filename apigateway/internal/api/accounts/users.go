package accounts

import (
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/accountops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store/view"
)

// user is a user in an answer. Unknown fields are null.
type user struct {
	ID       string `json:"id"`
	Username string `json:"username"`
	Email    string `json:"email"`
	Role     string `json:"role"`
	// Permissions are those that the user has in the fleet or, by Bindings, in some groups.
	Permissions []auth.Permission `json:"permissions"`
	// FleetPermissions are those that the caller has in the whole fleet, in the answer of auth/me only.
	FleetPermissions []auth.Permission `json:"fleetPermissions,omitzero"`
	Bindings         []userBinding     `json:"bindings"`
	AvatarURL        *string           `json:"avatarUrl"`
	MinecraftUUID    *string           `json:"minecraftUuid"`
	MinecraftName    *string           `json:"minecraftName"`
	CreatedAt        *time.Time        `json:"createdAt"`
	// SecondFactor is true if a login needs a code.
	SecondFactor bool `json:"secondFactor"`
	// Provider is the login provider that the user comes from; null for local users.
	Provider *string `json:"provider"`
}

// userBinding is what a binding gives to a user.
type userBinding struct {
	Name        string            `json:"name"`
	Role        string            `json:"role"`
	Selector    string            `json:"selector"`
	Permissions []auth.Permission `json:"permissions"`
}

func (a *API) userRoutes() []server.Route {
	return server.Under("/api/v1/users",
		server.Get("", server.Needs(auth.UsersView), a.listUsers),
		server.Post("", server.Needs(auth.UsersCreate), a.createUser).Rehearses(),
		server.Get("/:name", server.Needs(auth.UsersView), a.getUser),
		server.Patch("/:name", server.Anyone, a.patchUser).Rehearses(), // users.update, or the caller's own name
		server.Delete("/:name", server.Needs(auth.UsersDelete), a.deleteUser).Rehearses(),
	)
}

func userOf(s *view.Snapshot, u *account.User) user {
	out := user{
		ID: u.Username, Username: u.Username, Email: u.Email, Role: u.Role, CreatedAt: &u.CreatedAt,
		Permissions: append([]auth.Permission{}, auth.PermissionsOf(s, u)...), Bindings: []userBinding{},
	}
	for _, b := range s.BindingsOf(u.ID()) {
		out.Bindings = append(out.Bindings, userBinding{b.Name, b.Role, b.Selector.String(), append([]auth.Permission{}, auth.GrantedBy(s, *b)...)})
	}
	out.AvatarURL = avatarURL(u)
	if u.Issuer != "" {
		out.Provider = &u.Issuer
	}
	if f, ok := s.Factors.Get(u.ID()); ok {
		out.SecondFactor = f.Confirmed()
	}
	if u.MinecraftUUID != "" {
		out.MinecraftUUID, out.MinecraftName = new(string(u.MinecraftUUID)), &u.MinecraftName
	}
	return out
}

// userName returns the user that the path names.
func userName(c *gin.Context) string { return strings.ToLower(c.Param("name")) }

func (a *API) listUsers(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	all := make([]*account.User, 0, s.Users.Len())
	for _, u := range s.Users.All() {
		if !u.Service {
			all = append(all, u)
		}
	}
	server.SendPage(c, all, resource.MediumPage, func(u *account.User) user { return userOf(s, u) })
}

func (a *API) getUser(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	u, ok := s.Users.Get(userName(c))
	if !ok || u.Service {
		server.Fail(c, errs.New(errs.NotFound, "there is no user %s", c.Param("name")))
		return
	}
	server.ETag(c, u.ModRev)
	c.JSON(http.StatusOK, userOf(s, u))
}

// userBody is the body of a request.
type userBody struct {
	Username *string `json:"username"`
	Email    *string `json:"email"`
	Role     *string `json:"role"`
	Password *string `json:"password"`
	// EndAPITokens deletes the user's API tokens when the password changes.
	EndAPITokens bool `json:"endApiTokens"`
}

// writeUser converts the body. It returns false if it answered the request.
func (a *API) writeUser(c *gin.Context, b userBody) (w accountops.UserWrite, ok bool) {
	who, _ := server.Identity(c)
	w = accountops.UserWrite{Email: b.Email, EndTokens: b.EndAPITokens, May: who.Permissions, DryRun: server.DryRun(c)}
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
		c.JSON(http.StatusOK, userOf(a.cfg.Operations.Snapshot(), &u))
	default:
		server.ETag(c, u.ModRev)
		c.Header("Location", "/api/v1/users/"+u.Username)
		c.JSON(http.StatusCreated, userOf(a.cfg.Operations.Snapshot(), &u))
	}
}

// patchUser changes a user. Users without users.update may change only their own name.
func (a *API) patchUser(c *gin.Context) {
	var b userBody
	if !server.Bind(c, &b) {
		return
	}
	who, _ := server.Identity(c)
	name := userName(c)
	if !who.Can(auth.UsersUpdate) && (name != who.User || b.Email != nil || b.Role != nil || b.Password != nil || who.TokenID != "") {
		server.Fail(c, errs.New(errs.Denied, "%s; without it you can change only your own username, with a login", who.Lacks(auth.UsersUpdate)))
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
	own := name == who.User && who.TokenID == ""
	if own && (b.Password != nil || b.Username != nil) {
		txn.ShownOnce(c.Request.Context()) // the answer may have the tokens of a new login
	}
	u, err := a.cfg.Operations.UpdateUser(c.Request.Context(), server.Actor(c), name, w)
	if err != nil {
		server.Fail(c, err)
		return
	}
	if !w.DryRun {
		server.ETag(c, u.ModRev)
	}
	out := changedUser{user: userOf(a.cfg.Operations.Snapshot(), &u)}
	if own && !w.DryRun && u.Epoch != who.Credential().Epoch {
		out.session = new(session)
		if err := a.tokensInto(c, out.session, &u, a.nextLogin(c, &u)); err != nil {
			server.Fail(c, err)
			return
		}
	}
	c.JSON(http.StatusOK, out)
}

// changedUser is a user after a change. A change of one's own password or name ends all logins, so
// the answer has the tokens of a new one.
type changedUser struct {
	user
	*session
}

func (a *API) deleteUser(c *gin.Context) {
	w, ok := a.writeUser(c, userBody{})
	if !ok {
		return
	}
	gone := a.cfg.Operations.Snapshot()
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
