package accounts

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth/oidclogin"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
)

const (
	oidcBase = "/api/v1/auth/oidc"
	// OIDCCallback is the path that the provider sends browsers back to.
	OIDCCallback = oidcBase + "/callback"
	// oidcCookie is the name of the cookie with a login in progress.
	oidcCookie = "orrery_oidc"
	// maxClientState and maxRedirect bound what a client sends, in bytes: a cookie holds 4 KiB.
	maxClientState, maxRedirect = 512, 1024
)

// oidcRoutes serve logins at an OpenID Connect provider. Only the first request counts as a login attempt:
// the others need what it sealed.
func (a *API) oidcRoutes() []server.Route {
	return server.Under(oidcBase,
		server.Get("", server.Public, a.oidcProvider),
		server.Get("/login", server.Login, a.oidcLogin),
		server.Get("/callback", server.Public, a.oidcCallback),
		server.Post("/exchange", server.Public, a.oidcExchange),
	)
}

// loginURL returns the URL of the login route as browsers reach it.
func (a *API) loginURL() string {
	return strings.TrimSuffix(a.cfg.Provider.RedirectURL(), "/callback") + "/login"
}

// oidcProvider tells clients whether and where users can log in at a provider.
func (a *API) oidcProvider(c *gin.Context) {
	out := gin.H{"enabled": false, "issuer": nil, "loginUrl": nil}
	if a.cfg.Provider.Enabled() {
		out = gin.H{"enabled": true, "issuer": a.cfg.Provider.Issuer(), "loginUrl": a.loginURL()}
	}
	c.JSON(http.StatusOK, out)
}

// oidcEnabled reports whether there is a provider. If not, it answers the request.
func (a *API) oidcEnabled(c *gin.Context) bool {
	if !a.cfg.Provider.Enabled() {
		server.Refuse(c, wire.Reply{
			Status: http.StatusNotFound, Code: "NOT_ENABLED",
			Message: "no login provider is configured: log in with a password, or an administrator sets oidc.issuer",
		})
		return false
	}
	return true
}

// oidcLogin sends a browser to the provider.
func (a *API) oidcLogin(c *gin.Context) {
	if !a.oidcEnabled(c) {
		return
	}
	client := oidclogin.Client{RedirectURI: c.Query("redirect_uri"), State: c.Query("state"), Challenge: c.Query("code_challenge")}
	err := oidclogin.CheckRedirect(client.RedirectURI, a.cfg.Settings.Now().Origins)
	switch {
	case err != nil:
	case !oidclogin.ValidChallenge(client.Challenge):
		err = errs.Field("code_challenge", "must be the SHA-256 of a verifier in base64url, as in RFC 7636")
	case len(client.RedirectURI) > maxRedirect:
		err = errs.Field("redirect_uri", "must have at most %d bytes", maxRedirect)
	case len(client.State) > maxClientState:
		err = errs.Field("state", "must have at most %d bytes", maxClientState)
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	page, kept, err := a.cfg.Provider.Begin(c.Request.Context(), client)
	if err != nil {
		a.cfg.Operations.Log.Warn("a user could not log in at the provider", "issuer", a.cfg.Provider.Issuer(), "error", err)
		a.sendBack(c, client, err)
		return
	}
	a.setCookie(c, kept, int(oidclogin.AttemptTime.Seconds()))
	redirect(c, page)
}

// setCookie stores the attempt in the browser. An age below 0 removes it.
func (a *API) setCookie(c *gin.Context, value string, age int) {
	back, _ := url.Parse(a.cfg.Provider.RedirectURL()) // checked with the settings
	http.SetCookie(c.Writer, &http.Cookie{
		Name: oidcCookie, Value: value, Path: strings.TrimSuffix(back.Path, "/callback"), MaxAge: age,
		Secure: back.Scheme == "https", HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
}

func redirect(c *gin.Context, to string) {
	c.Header("Cache-Control", "no-store")
	c.Header("Referrer-Policy", "no-referrer")
	c.Header("Location", to)
	c.Status(http.StatusFound)
}

// oidcCallback ends a login at the provider, and sends the browser back to the client with a grant or
// an error. Without the cookie of a login it answers with the error itself, because a stranger could
// have made the address.
func (a *API) oidcCallback(c *gin.Context) {
	if !a.oidcEnabled(c) {
		return
	}
	kept, _ := c.Cookie(oidcCookie)
	attempt, err := a.cfg.Provider.AttemptOf(kept, c.Query("state"))
	if err != nil {
		a.cfg.Operations.NoteRefusedExternal(c.Request.Context(), server.Actor(c), "", err)
		server.Fail(c, err)
		return
	}
	a.setCookie(c, "", -1)
	grant, err := a.finish(c, attempt)
	if err != nil {
		a.sendBack(c, attempt.Client, err)
		return
	}
	redirect(c, oidclogin.Extended(attempt.Client.RedirectURI, url.Values{"code": {grant}, "state": {attempt.Client.State}}))
}

// finish signs the user in whom the provider has authenticated, and returns a grant for the client.
func (a *API) finish(c *gin.Context, attempt oidclogin.Attempt) (string, error) {
	ctx, by, o := c.Request.Context(), server.Actor(c), a.cfg.Operations
	if problem := c.Query("error"); problem != "" {
		err := errs.New(errs.Unauthenticated, "the login provider refuses the login: %s %s", txn.Clip(problem), txn.Clip(c.Query("error_description")))
		o.NoteRefusedExternal(ctx, by, "", err)
		return "", err
	}
	external, err := a.cfg.Provider.Finish(ctx, attempt, c.Query("code"))
	if err != nil {
		o.Log.Warn("a login at the provider failed", "issuer", a.cfg.Provider.Issuer(), "error", err)
		o.NoteRefusedExternal(ctx, by, "", err)
		return "", err
	}
	user, err := o.SignInExternal(ctx, by, external, a.cfg.GroupRoles)
	if err != nil {
		return "", err
	}
	l := a.newLogin(c, &user)
	if err := o.SignIn(ctx, by, &user, l); err != nil {
		return "", err
	}
	return a.cfg.Provider.Grant(user.Username, l.ID, attempt.Client), nil
}

// sendBack sends a browser back to the client with an error, in the form of RFC 6749.
func (a *API) sendBack(c *gin.Context, client oidclogin.Client, err error) {
	code := "access_denied"
	switch errs.KindOf(err) {
	case errs.Unavailable, errs.Exhausted, errs.Canceled:
		code = "temporarily_unavailable"
	case errs.Internal, errs.Fenced:
		code = "server_error"
	case errs.Malformed, errs.Invalid, errs.NotFound, errs.AlreadyExists, errs.Conflict, errs.TooLarge, errs.Unauthenticated, errs.Denied:
	}
	_ = c.Error(err) // for the access log
	message := wire.V1.ReplyTo(server.RequestID(c), err).Message
	redirect(c, oidclogin.Extended(client.RedirectURI, url.Values{"error": {code}, "error_description": {message}, "state": {client.State}}))
}

// oidcExchange gives the client that began a login its tokens.
func (a *API) oidcExchange(c *gin.Context) {
	var b struct {
		Code     *string `json:"code"`
		Verifier *string `json:"codeVerifier"`
	}
	if !server.Bind(c, &b) || !a.oidcEnabled(c) {
		return
	}
	switch {
	case b.Code == nil:
		server.Fail(c, errs.Field("code", "is missing"))
		return
	case b.Verifier == nil:
		server.Fail(c, errs.Field("codeVerifier", "is missing"))
		return
	}
	name, login, err := a.cfg.Provider.Redeem(*b.Code, *b.Verifier)
	if err != nil {
		server.Fail(c, err)
		return
	}
	l, err := a.cfg.Operations.RedeemLogin(c.Request.Context(), server.Actor(c), name, login)
	if err != nil {
		server.Fail(c, err)
		return
	}
	s := a.cfg.Operations.Snapshot()
	u, ok := s.Users.Get(name)
	if !ok {
		server.Fail(c, errs.New(errs.Unauthenticated, "the user %s no longer exists", name))
		return
	}
	a.sendSession(c, u, l, session{User: new(userOf(s, u))})
}
