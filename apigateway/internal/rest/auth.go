package rest

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// identityRoutes are logins and tokens.
func (a *API) identityRoutes() []server.Route {
	return append(a.resetRoutes(),
		server.Post("/api/v1/auth/login", server.Login, a.login),
		server.Post("/api/v1/auth/refresh", server.Anyone, a.refresh),
		server.Post("/api/v1/auth/logout", server.Anyone, a.logout),
		server.Post("/api/v1/auth/change-password", server.Anyone, a.changePassword).ShowsOnce(),
		server.Get("/api/v1/auth/keys", server.Needs(auth.SystemSettings), a.signingKeys),
		server.Post("/api/v1/auth/keys/rotate", server.Needs(auth.SystemSettings), a.rotateKeys),
		server.Get("/api/v1/auth/me", server.Anyone, a.me),
		server.Get("/api/v1/api-tokens", server.Needs(auth.TokensView), a.listTokens),
		server.Post("/api/v1/api-tokens", server.Needs(auth.TokensCreate), a.createToken).ShowsOnce(),
		server.Get("/api/v1/api-tokens/:id", server.Needs(auth.TokensView), a.getToken),
		server.Delete("/api/v1/api-tokens/:id", server.Needs(auth.TokensRevoke), a.deleteToken),
	)
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
	if !a.cfg.WithinName(c, *b.Username) {
		return
	}
	var (
		token string
		who   auth.Identity
	)
	err := a.cfg.Operations.Prove(c.Request.Context(), server.Actor(c), *b.Username, func() (err error) {
		token, who, err = a.cfg.Auth.Login(c.Request.Context(), *b.Username, *b.Password)
		return err
	})
	if err != nil {
		refuseLogin(c, err)
		return
	}
	snap := a.snapshot()
	record, ok := snap.Users.Get(who.User)
	if !ok {
		server.Fail(c, errs.New(errs.Unauthenticated, "the user %s does not exist any more", who.User))
		return
	}
	a.sendSession(c, session{Token: token, User: new(userOf(snap, record))})
}

// lockedOut tells older clients where they look what the envelope tells the others.
type lockedOut struct {
	Error       gin.H     `json:"error"`
	Message     string    `json:"message"`
	LockedUntil time.Time `json:"lockedUntil"`
}

// refuseLogin answers to a password that was wrong, or not looked at.
func refuseLogin(c *gin.Context, err error) {
	locked, is := errors.AsType[*operate.LockedError](err)
	if !is {
		server.Fail(c, err)
		return
	}
	const status = http.StatusTooManyRequests
	wait := math.Ceil(max(time.Until(locked.Until).Seconds(), 1))
	c.Header("Retry-After", strconv.Itoa(int(wait)))
	c.AbortWithStatusJSON(status, lockedOut{
		Error:   gin.H{"code": "ACCOUNT_LOCKED", "message": locked.Error(), "status": status},
		Message: locked.Error(), LockedUntil: locked.Until,
	})
}

// session is the answer to a login. The token comes first: shell scripts cut it out.
type session struct {
	Token            string `json:"token"`
	User             *user  `json:"user,omitempty"`
	ExpiresInSeconds int    `json:"expiresInSeconds"`
}

func (a *API) sendSession(c *gin.Context, s session) {
	s.ExpiresInSeconds = a.sessionSeconds()
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusOK, s)
}

// sessionSeconds is how long a token is good for that is made now.
func (a *API) sessionSeconds() int { return int(a.cfg.Settings.Now().Session / time.Second) }

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
	a.sendSession(c, session{Token: token})
}

// me is who asks, with what the token that was sent may do.
func (a *API) me(c *gin.Context) {
	who, _ := server.Identity(c)
	s := a.snapshot()
	record, ok := s.Users.Get(who.User)
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "the user %s does not exist any more", who.User))
		return
	}
	out := userOf(s, record)
	out.Permissions = who.Permissions
	c.JSON(http.StatusOK, out)
}

// logout ends the login whose token is sent with all its tokens, on every gateway.
func (a *API) logout(c *gin.Context) {
	who, _ := server.Identity(c)
	if who.TokenID != "" {
		server.Fail(c, errs.New(errs.Denied, "an API token has no login to end: delete it, or let it expire"))
		return
	}
	if err := a.cfg.Operations.EndLogin(c.Request.Context(), server.Actor(c), who.Credential()); err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{"status": "ok"})
}

// changePassword gives who asks another password. All tokens of logins end; the answer has
// a new one.
func (a *API) changePassword(c *gin.Context) {
	var b struct {
		CurrentPassword *string `json:"currentPassword"`
		NewPassword     *string `json:"newPassword"`
	}
	if !server.Bind(c, &b) {
		return
	}
	who, _ := server.Identity(c)
	switch {
	case b.CurrentPassword == nil:
		server.Fail(c, errs.Field("currentPassword", "is missing"))
		return
	case b.NewPassword == nil:
		server.Fail(c, errs.Field("newPassword", "is missing"))
		return
	case who.TokenID != "":
		server.Fail(c, errs.New(errs.Denied, "an API token cannot change a password: log in"))
		return
	}
	token, err := a.newPassword(c, who, *b.CurrentPassword, *b.NewPassword)
	if err != nil {
		refuseLogin(c, err)
		return
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusOK, gin.H{"status": "ok", "token": token, "expiresInSeconds": a.sessionSeconds()})
}

// newPassword sets it, and is a token that is good afterwards.
func (a *API) newPassword(c *gin.Context, who auth.Identity, current, password string) (token string, err error) {
	ctx := c.Request.Context()
	var user *fleet.User
	err = a.cfg.Operations.Prove(ctx, server.Actor(c), who.User, func() (err error) {
		user, err = a.cfg.Auth.CheckPassword(ctx, who, current)
		return err
	})
	if err != nil {
		return "", err
	}
	hash, err := a.cfg.Auth.HashPassword(ctx, "newPassword", password)
	if err != nil {
		return "", err
	}
	changed, err := a.cfg.Operations.UpdateUser(ctx, server.Actor(c), who.User, operate.UserWrite{
		PasswordHash: &hash, OldHash: user.PasswordHash, May: who.Permissions,
	})
	if err != nil {
		return "", err
	}
	return a.cfg.Auth.Session(&changed)
}

func (a *API) signingKeys(c *gin.Context) {
	keys, rev := a.cfg.Auth.Keys()
	server.ETag(c, rev)
	c.JSON(http.StatusOK, keys)
}

// rotateKeys makes another key sign the tokens of logins, on every gateway.
func (a *API) rotateKeys(c *gin.Context) {
	rotation, err := a.cfg.Auth.RotateKeys()
	if err == nil {
		_, err = a.cfg.Operations.Record(c.Request.Context(), server.Actor(c), "auth.rotate-keys", "signing-keys", "jwt", "", rotation)
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	a.signingKeys(c)
}
