package accounts

import (
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/accountops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/wire"
)

// identityRoutes serve logins, API tokens and the caller's own identity.
func (a *API) identityRoutes() []server.Route {
	return append(slices.Concat(a.resetRoutes(), a.factorRoutes(), a.oidcRoutes()),
		server.Post("/api/v1/auth/login", server.Login, a.login),
		server.Post("/api/v1/auth/refresh", server.Public, a.refresh),
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
		Code     string  `json:"code"`
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
	var record *account.User
	err := a.cfg.Operations.Prove(c.Request.Context(), server.Actor(c), *b.Username, func() (err error) {
		if record, err = a.cfg.Auth.Login(c.Request.Context(), *b.Username, *b.Password); err != nil {
			return err
		}
		return a.cfg.Operations.CheckFactor(c.Request.Context(), server.Actor(c), record, b.Code)
	})
	if err != nil {
		refuseLogin(c, err)
		return
	}
	l := a.newLogin(c, record)
	if err := a.cfg.Operations.SignIn(c.Request.Context(), server.Actor(c), record, l); err != nil {
		// A correct password is enough while etcd is not reachable.
		a.cfg.Operations.Log.Warn("login not recorded: it has no refresh token and no audit entry", "user", record.Username, "address", c.ClientIP(), "error", err)
		l.Serial = 0
	}
	a.sendSession(c, record, l, session{User: new(userOf(a.cfg.Operations.Snapshot(), record))})
}

// maxUserAgent bounds the stored user agent, in bytes.
const maxUserAgent = 256

// newLogin returns a login that begins with this request.
func (a *API) newLogin(c *gin.Context, u *account.User) account.Login {
	l := a.cfg.Auth.NewLogin(u)
	l.IPAddress = c.ClientIP()
	agent := c.Request.UserAgent()
	l.UserAgent = strings.ToValidUTF8(agent[:min(len(agent), maxUserAgent)], "")
	return l
}

// lockedOut has the fields in which older clients look for a lockout, next to the usual error.
type lockedOut struct {
	Error       gin.H     `json:"error"`
	Message     string    `json:"message"`
	LockedUntil time.Time `json:"lockedUntil"`
}

// refuseLogin answers a failed or refused login.
func refuseLogin(c *gin.Context, err error) {
	locked, is := errors.AsType[*accountops.LockedError](err)
	switch {
	case errors.Is(err, accountops.ErrCodeMissing):
		server.Refuse(c, wire.Reply{Status: http.StatusUnauthorized, Code: "SECOND_FACTOR_REQUIRED", Message: errs.MessageOf(err)})
		return
	case errors.Is(err, accountops.ErrCodeWrong):
		server.Refuse(c, wire.Reply{Status: http.StatusUnauthorized, Code: "SECOND_FACTOR_WRONG", Message: errs.MessageOf(err)})
		return
	case !is:
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

// session is the answer to a login. The token comes first because shell scripts cut it out by
// position.
type session struct {
	Token string `json:"token"`
	User  *user  `json:"user,omitempty"`
	// ExpiresInSeconds is how long the token is valid.
	ExpiresInSeconds int `json:"expiresInSeconds"`
	// RefreshToken can be exchanged once for the next token and refresh token.
	RefreshToken string `json:"refreshToken,omitempty"`
	// LoginExpiresAt is when the login ends. Refreshing does not extend it.
	LoginExpiresAt time.Time `json:"loginExpiresAt"`
	// Status is set in the responses in which older clients expect it.
	Status string `json:"status,omitempty"`
}

// sendSession answers with the tokens of a login added to s.
func (a *API) sendSession(c *gin.Context, u *account.User, l account.Login, s session) {
	if err := a.tokensInto(c, &s, u, l); err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, s)
}

// tokensInto adds the tokens of a login to an answer and forbids caching it.
func (a *API) tokensInto(c *gin.Context, s *session, u *account.User, l account.Login) (err error) {
	if s.Token, s.RefreshToken, err = a.cfg.Auth.Tokens(u, l); err != nil {
		return err
	}
	s.LoginExpiresAt = l.Ends()
	s.ExpiresInSeconds = int(min(a.cfg.Settings.Now().Session, s.LoginExpiresAt.Sub(a.cfg.Operations.Now())) / time.Second)
	c.Header("Cache-Control", "no-store")
	return nil
}

// refresh renews the tokens of a login for its refresh token. Older clients send the access token
// and get no refresh token. An API token cannot be refreshed: the new one would outlive its
// deletion.
func (a *API) refresh(c *gin.Context) {
	var b struct {
		RefreshToken *string `json:"refreshToken"`
	}
	if !server.BindOptional(c, &b) {
		return
	}
	if b.RefreshToken != nil {
		a.refreshOnce(c, *b.RefreshToken)
		return
	}
	who, known := server.Identity(c)
	switch {
	case !known:
		c.Header("WWW-Authenticate", `Bearer realm="orrery"`)
		server.Fail(c, errs.New(errs.Unauthenticated, "send a refreshToken, or the token of a login as Authorization: Bearer <token>"))
		return
	case who.TokenID != "":
		server.Fail(c, errs.New(errs.Denied, "an API token cannot be refreshed: it is valid until it expires or is deleted"))
		return
	}
	l, err := a.cfg.Auth.Refresh(who)
	u, ok := a.cfg.Auth.User(who.User)
	if err == nil && !ok {
		err = errs.New(errs.Unauthenticated, "the user %s no longer exists", who.User)
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	if _, kept := a.cfg.Operations.Snapshot().Logins.Get(l.ID); !kept {
		l.IPAddress = c.ClientIP()
		if err := a.cfg.Operations.KeepLogin(c.Request.Context(), server.Actor(c), l); err != nil {
			a.cfg.Operations.Log.Debug("cannot list a refreshed login", "user", u.Username, "error", err)
		}
	}
	a.sendSession(c, u, l, session{})
}

// refreshOnce exchanges a refresh token.
func (a *API) refreshOnce(c *gin.Context, token string) {
	name, login, serial, err := a.cfg.Auth.Refreshes(token)
	if err != nil {
		server.Fail(c, err)
		return
	}
	l, err := a.cfg.Operations.RefreshLogin(c.Request.Context(), server.Actor(c), accountops.RefreshToken{User: name, Login: login, Serial: serial})
	if err != nil {
		server.Fail(c, err)
		return
	}
	u, ok := a.cfg.Auth.User(name)
	if !ok {
		server.Fail(c, errs.New(errs.Unauthenticated, "the user %s no longer exists", name))
		return
	}
	a.sendSession(c, u, l, session{})
}

// me answers with the caller and the permissions that the sent token has anywhere.
func (a *API) me(c *gin.Context) {
	who, _ := server.Identity(c)
	s := a.cfg.Operations.Snapshot()
	record, ok := s.Users.Get(who.User)
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "the user %s no longer exists", who.User))
		return
	}
	out := userOf(s, record)
	out.Permissions = append([]auth.Permission{}, who.Anywhere()...)
	out.FleetPermissions = append([]auth.Permission{}, who.Permissions...)
	c.JSON(http.StatusOK, out)
}

// logout ends the login of the sent token, with all its tokens, on every gateway.
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

// changePassword changes the caller's password. It ends all logins of the user and answers with a
// new one.
func (a *API) changePassword(c *gin.Context) {
	var b struct {
		CurrentPassword *string `json:"currentPassword"`
		NewPassword     *string `json:"newPassword"`
		EndAPITokens    bool    `json:"endApiTokens"`
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
	changed, err := a.newPassword(c, who, *b.CurrentPassword, accountops.UserWrite{EndTokens: b.EndAPITokens, May: who.Permissions}, *b.NewPassword)
	if err != nil {
		refuseLogin(c, err)
		return
	}
	a.sendSession(c, &changed, a.nextLogin(c, &changed), session{Status: "ok"})
}

// nextLogin starts a login for a user whose other logins a change has just ended.
func (a *API) nextLogin(c *gin.Context, u *account.User) account.Login {
	l := a.newLogin(c, u)
	if err := a.cfg.Operations.KeepLogin(c.Request.Context(), server.Actor(c), l); err != nil {
		a.cfg.Operations.Log.Warn("login after a password change not recorded: it has no refresh token", "user", u.Username, "error", err)
		l.Serial = 0
	}
	return l
}

// newPassword changes the password of a user and returns the changed user.
func (a *API) newPassword(c *gin.Context, who auth.Identity, current string, w accountops.UserWrite, password string) (changed account.User, err error) {
	ctx := c.Request.Context()
	var user *account.User
	err = a.cfg.Operations.ProvePassword(ctx, server.Actor(c), who.User, func() (err error) {
		user, err = a.cfg.Auth.CheckPassword(ctx, who, current)
		return err
	})
	if err != nil {
		return changed, err
	}
	hash, err := a.cfg.Auth.HashPassword(ctx, "newPassword", password)
	if err != nil {
		return changed, err
	}
	w.PasswordHash, w.OldHash = &hash, user.PasswordHash
	return a.cfg.Operations.UpdateUser(ctx, server.Actor(c), who.User, w)
}

func (a *API) signingKeys(c *gin.Context) {
	keys, rev := a.cfg.Auth.Keys()
	server.ETag(c, rev)
	c.JSON(http.StatusOK, keys)
}

// rotateKeys makes all gateways sign tokens with a new key.
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
