package rest

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
)

// user is a user as this dialect shows it. What this system does not know of
// users is null.
type user struct {
	ID            string            `json:"id"`
	Username      string            `json:"username"`
	Role          string            `json:"role"`
	Permissions   []auth.Permission `json:"permissions"`
	AvatarURL     *string           `json:"avatarUrl"`
	MinecraftUUID *string           `json:"minecraftUuid"`
	MinecraftName *string           `json:"minecraftName"`
	CreatedAt     *time.Time        `json:"createdAt"`
}

// identityRoutes are logins and tokens.
func (a *API) identityRoutes() []server.Route {
	return []server.Route{
		server.Post("/api/v1/auth/login", server.Login, a.login),
		server.Post("/api/v1/auth/refresh", server.Anyone, a.refresh),
		server.Get("/api/v1/auth/me", server.Anyone, a.me),
		server.Get("/api/v1/api-tokens", server.Needs(auth.TokensView), a.listTokens),
		server.Post("/api/v1/api-tokens", server.Needs(auth.TokensCreate), a.createToken),
		server.Delete("/api/v1/api-tokens/:id", server.Needs(auth.TokensRevoke), a.deleteToken),
	}
}

func (a *API) userOf(who auth.Identity) user {
	out := user{ID: who.User, Username: who.User, Role: who.Role, Permissions: who.Permissions}
	if record, ok := a.cfg.Auth.User(who.User); ok {
		out.CreatedAt = &record.CreatedAt
	}
	return out
}

func (a *API) login(c *gin.Context) {
	var b struct {
		Username *string `json:"username"`
		Password *string `json:"password"`
	}
	if !server.Bind(c, &b) {
		return
	}
	switch {
	case b.Username == nil:
		server.Fail(c, errs.Field("username", "is missing"))
		return
	case b.Password == nil:
		server.Fail(c, errs.Field("password", "is missing"))
		return
	}
	token, who, err := a.cfg.Auth.Login(c.Request.Context(), *b.Username, *b.Password)
	if err != nil {
		server.Fail(c, err)
		return
	}
	shown := a.userOf(who)
	sendSession(c, session{Token: token, User: &shown})
}

// session is the answer to a login. The token comes first: shell scripts cut it out.
type session struct {
	Token            string `json:"token"`
	User             *user  `json:"user,omitempty"`
	ExpiresInSeconds int    `json:"expiresInSeconds"`
}

func sendSession(c *gin.Context, s session) {
	s.ExpiresInSeconds = int(auth.SessionTTL / time.Second)
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusOK, s)
}

// refresh renews the token of a login. An API token is not exchanged for one,
// which would outlive its deletion.
func (a *API) refresh(c *gin.Context) {
	who, _ := server.Identity(c)
	if who.TokenID != "" {
		server.Fail(c, errs.New(errs.Denied, "an API token cannot be refreshed: it is good until it expires or is deleted"))
		return
	}
	token, err := a.cfg.Auth.Refresh(who)
	if err != nil {
		server.Fail(c, err)
		return
	}
	sendSession(c, session{Token: token})
}

func (a *API) me(c *gin.Context) {
	who, _ := server.Identity(c)
	c.JSON(http.StatusOK, a.userOf(who))
}
