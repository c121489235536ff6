package accounts

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/auth/totp"
	"github.com/orreryhq/orrery/apigateway/internal/ops/accountops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
)

// factorRoutes serve the second factor of logins.
func (a *API) factorRoutes() []server.Route {
	const own = "/api/v1/auth/second-factor"
	return []server.Route{
		server.Get(own, server.Anyone, a.getFactor),
		server.Post(own, server.Anyone, a.beginFactor).ShowsOnce(),
		server.Post(own+"/confirm", server.Anyone, a.confirmFactor).ShowsOnce(),
		server.Post(own+"/disable", server.Anyone, a.disableFactor),
		server.Delete("/api/v1/users/:name/second-factor", server.Needs(auth.UsersUpdate), a.removeFactor).Unconditional(),
	}
}

// factor is the state of the caller's second factor.
type factor struct {
	Enabled bool `json:"enabled"`
	// EnabledAt is null without a confirmed factor.
	EnabledAt *time.Time `json:"enabledAt"`
	// RecoveryCodesLeft is how many recovery codes are unused.
	RecoveryCodesLeft int `json:"recoveryCodesLeft"`
}

// enrolment is what an authenticator needs.
type enrolment struct {
	Secret    string    `json:"secret"`
	URI       string    `json:"uri"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// loggedIn returns the caller, who must have logged in. It returns false if it answered the request.
func loggedIn(c *gin.Context) (auth.Identity, bool) {
	who, _ := server.Identity(c)
	if who.TokenID != "" {
		server.Fail(c, errs.New(errs.Denied, "an API token cannot change the second factor of its user: log in"))
		return who, false
	}
	return who, true
}

func (a *API) getFactor(c *gin.Context) {
	who, _ := server.Identity(c)
	out := factor{}
	if f, ok := a.cfg.Operations.Snapshot().Factors.Get(who.UserID); ok && f.Confirmed() {
		out = factor{Enabled: true, EnabledAt: &f.ConfirmedAt, RecoveryCodesLeft: len(f.Recovery)}
	}
	c.JSON(http.StatusOK, out)
}

// beginFactor needs the password, because a thief who has only a login must not lock its user out.
func (a *API) beginFactor(c *gin.Context) {
	var b struct {
		CurrentPassword *string `json:"currentPassword"`
	}
	if !server.Bind(c, &b) {
		return
	}
	if b.CurrentPassword == nil {
		server.Fail(c, errs.Field("currentPassword", "is missing"))
		return
	}
	who, ok := loggedIn(c)
	if !ok {
		return
	}
	ctx, by := c.Request.Context(), server.Actor(c)
	err := a.cfg.Operations.ProvePassword(ctx, by, who.User, func() error {
		_, err := a.cfg.Auth.CheckPassword(ctx, who, *b.CurrentPassword)
		return err
	})
	if err != nil {
		refuseProof(c, err)
		return
	}
	begun, err := a.cfg.Operations.BeginFactor(ctx, by)
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusOK, enrolment{
		Secret: totp.Text(begun.Secret), URI: totp.URI(a.issuer(), who.User, begun.Secret), ExpiresAt: begun.ExpiresAt,
	})
}

// issuer is the name under which authenticators list this cluster.
func (a *API) issuer() string {
	if name := a.cfg.ClusterName; name != "" && name != "orrery" {
		return "Orrery " + name
	}
	return "Orrery"
}

// codeBody is the body of a request with a code.
type codeBody struct {
	Code *string `json:"code"`
}

// boundCode returns the code in the body. It returns false if it answered the request.
func boundCode(c *gin.Context) (string, bool) {
	var b codeBody
	if !server.Bind(c, &b) {
		return "", false
	}
	if b.Code == nil {
		server.Fail(c, errs.Field("code", "is missing"))
		return "", false
	}
	return *b.Code, true
}

func (a *API) confirmFactor(c *gin.Context) {
	code, ok := boundCode(c)
	if !ok {
		return
	}
	if _, ok := loggedIn(c); !ok {
		return
	}
	recovery, err := a.cfg.Operations.ConfirmFactor(c.Request.Context(), server.Actor(c), code)
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusOK, gin.H{"recoveryCodes": recovery})
}

func (a *API) disableFactor(c *gin.Context) {
	code, ok := boundCode(c)
	if !ok {
		return
	}
	who, ok := loggedIn(c)
	if !ok {
		return
	}
	ctx, by := c.Request.Context(), server.Actor(c)
	if err := a.cfg.Operations.Prove(ctx, by, who.User, func() error { return a.cfg.Operations.DisableFactor(ctx, by, code) }); err != nil {
		refuseProof(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{"status": "ok"})
}

// refuseProof answers a wrong password or code of a caller who is logged in. It is 403, because clients
// take 401 for an expired token: they get another one and try again, and the failure counts twice.
func refuseProof(c *gin.Context, err error) {
	switch {
	case errors.Is(err, accountops.ErrCodeMissing), errors.Is(err, accountops.ErrCodeWrong):
		server.Refuse(c, wire.Reply{Status: http.StatusForbidden, Code: "SECOND_FACTOR_WRONG", Message: errs.MessageOf(accountops.ErrCodeWrong)})
	case errs.Is(err, errs.Unauthenticated):
		server.Fail(c, errs.New(errs.Denied, "%s", errs.MessageOf(err)))
	default:
		refuseLogin(c, err)
	}
}

func (a *API) removeFactor(c *gin.Context) {
	who, _ := server.Identity(c)
	if strings.EqualFold(userName(c), who.User) {
		server.Fail(c, errs.New(errs.Denied, "disable your own second factor with one of its codes: orrery second-factor disable --code CODE"))
		return
	}
	resource.SendDeleted(c, a.cfg.Operations.RemoveFactor(c.Request.Context(), server.Actor(c), userName(c), who.Permissions))
}
