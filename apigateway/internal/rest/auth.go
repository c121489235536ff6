package rest

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
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
	var record *fleet.User
	err := a.cfg.Operations.Prove(c.Request.Context(), server.Actor(c), *b.Username, func() (err error) {
		record, err = a.cfg.Auth.Login(c.Request.Context(), *b.Username, *b.Password)
		return err
	})
	if err != nil {
		refuseLogin(c, err)
		return
	}
	l := a.newLogin(c, record)
	if err := a.cfg.Operations.SignIn(c.Request.Context(), server.Actor(c), record, l); err != nil {
		// Whoever has the password is not kept out because etcd is away.
		a.cfg.Log.Warn("a login was not recorded: it has no refresh token and is not in the audit", "user", record.Username, "address", c.ClientIP(), "error", err)
		l.Serial = 0
	}
	a.sendSession(c, record, l, session{User: new(userOf(a.snapshot(), record))})
}

// maxUserAgent bounds what is kept of a client's name, in bytes.
const maxUserAgent = 256

// newLogin is a login that begins with this request.
func (a *API) newLogin(c *gin.Context, u *fleet.User) fleet.Login {
	l := a.cfg.Auth.NewLogin(u)
	l.IPAddress = c.ClientIP()
	agent := c.Request.UserAgent()
	l.UserAgent = strings.ToValidUTF8(agent[:min(len(agent), maxUserAgent)], "")
	return l
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
	Token string `json:"token"`
	User  *user  `json:"user,omitempty"`
	// ExpiresInSeconds is how long the token is good for.
	ExpiresInSeconds int `json:"expiresInSeconds"`
	// RefreshToken gets the next token and the next refresh token, once.
	RefreshToken string `json:"refreshToken,omitempty"`
	// LoginExpiresAt is when the login ends, however often it is refreshed.
	LoginExpiresAt time.Time `json:"loginExpiresAt"`
	// Status is there where the answer had it before it had the rest.
	Status string `json:"status,omitempty"`
}

// sendSession answers with the tokens of a login, and what else the answer has.
func (a *API) sendSession(c *gin.Context, u *fleet.User, l fleet.Login, s session) {
	if err := a.tokensInto(c, &s, u, l); err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, s)
}

// tokensInto adds the tokens of a login to an answer, which nobody may keep.
func (a *API) tokensInto(c *gin.Context, s *session, u *fleet.User, l fleet.Login) (err error) {
	if s.Token, s.RefreshToken, err = a.cfg.Auth.Tokens(u, l); err != nil {
		return err
	}
	s.LoginExpiresAt = l.Ends()
	s.ExpiresInSeconds = int(min(a.cfg.Settings.Now().Session, s.LoginExpiresAt.Sub(a.cfg.Now())) / time.Second)
	c.Header("Cache-Control", "no-store")
	return nil
}

// refresh renews the tokens of a login: for its refresh token, or as older clients do for its
// access token, which gets no refresh token. An API token is not exchanged for one, which
// would outlive its deletion.
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
		server.Fail(c, errs.New(errs.Denied, "an API token cannot be refreshed: it is good until it expires or is deleted"))
		return
	}
	l, err := a.cfg.Auth.Refresh(who)
	u, ok := a.cfg.Auth.User(who.User)
	if err == nil && !ok {
		err = errs.New(errs.Unauthenticated, "the user %s does not exist any more", who.User)
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	if _, kept := a.snapshot().Logins.Get(l.ID); !kept {
		l.IPAddress = c.ClientIP()
		if err := a.cfg.Operations.KeepLogin(c.Request.Context(), server.Actor(c), l); err != nil {
			a.cfg.Log.Debug("a login that was refreshed is not listed", "user", u.Username, "error", err)
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
	l, err := a.cfg.Operations.RefreshLogin(c.Request.Context(), server.Actor(c), operate.RefreshToken{User: name, Login: login, Serial: serial})
	if err != nil {
		server.Fail(c, err)
		return
	}
	u, ok := a.cfg.Auth.User(name)
	if !ok {
		server.Fail(c, errs.New(errs.Unauthenticated, "the user %s does not exist any more", name))
		return
	}
	a.sendSession(c, u, l, session{})
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
	changed, err := a.newPassword(c, who, *b.CurrentPassword, operate.UserWrite{EndTokens: b.EndAPITokens, May: who.Permissions}, *b.NewPassword)
	if err != nil {
		refuseLogin(c, err)
		return
	}
	a.sendSession(c, &changed, a.nextLogin(c, &changed), session{Status: "ok"})
}

// nextLogin is the login of a user whose change has just ended all others.
func (a *API) nextLogin(c *gin.Context, u *fleet.User) fleet.Login {
	l := a.newLogin(c, u)
	if err := a.cfg.Operations.KeepLogin(c.Request.Context(), server.Actor(c), l); err != nil {
		a.cfg.Log.Warn("the login after a change of the password was not recorded: it has no refresh token", "user", u.Username, "error", err)
		l.Serial = 0
	}
	return l
}

// newPassword performs a write of a user with another password, and is the user afterwards.
func (a *API) newPassword(c *gin.Context, who auth.Identity, current string, w operate.UserWrite, password string) (changed fleet.User, err error) {
	ctx := c.Request.Context()
	var user *fleet.User
	err = a.cfg.Operations.Prove(ctx, server.Actor(c), who.User, func() (err error) {
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
