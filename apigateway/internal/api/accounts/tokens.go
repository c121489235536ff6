package accounts

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/accountops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
)

// apiToken is the record of an API token. Only the answer to its creation has the token itself.
type apiToken struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	User      string     `json:"user"`
	CreatedAt time.Time  `json:"createdAt"`
	ExpiresAt *time.Time `json:"expiresAt"` // null if it never expires
	// LastUsedAt is exact to an hour. It is null if the token was never used.
	LastUsedAt *time.Time `json:"lastUsedAt"`
	// Kind is ALL or PUBLIC.
	Kind string `json:"kind"`
	// Scopes are null if the token has all permissions of its user.
	Scopes []account.Permission `json:"scopes"`
	Token  string               `json:"token,omitempty"`
}

// Kinds of API tokens. ALL has the user's permissions or a subset of them, PUBLIC is read-only.
const (
	kindAll    = "ALL"
	kindPublic = "PUBLIC"
)

func tokenOf(t *account.APIToken) apiToken {
	out := apiToken{ID: t.ID, Name: t.Name, User: t.User, CreatedAt: t.CreatedAt, Kind: kindAll, Scopes: t.Scopes}
	if t.Public {
		out.Kind = kindPublic
	}
	if !t.LastUsedAt.IsZero() {
		out.LastUsedAt = &t.LastUsedAt
	}
	if !t.ExpiresAt.IsZero() {
		out.ExpiresAt = &t.ExpiresAt
	}
	return out
}

func (a *API) listTokens(c *gin.Context) {
	var all []*account.APIToken
	for _, t := range a.cfg.Operations.Snapshot().APITokens.All() {
		all = append(all, t)
	}
	slices.SortFunc(all, func(x, y *account.APIToken) int { return cmp.Compare(y.ID, x.ID) }) // newest first
	server.SendPage(c, all, resource.SmallPage, tokenOf)
}

func (a *API) getToken(c *gin.Context) {
	t, ok := a.cfg.Operations.Snapshot().APITokens.Get(c.Param("id"))
	if !ok {
		server.Fail(c, accountops.ErrNoAPIToken)
		return
	}
	server.WholeETag(c, t.ModRev)
	c.JSON(http.StatusOK, tokenOf(t))
}

// createToken creates a token of the caller, or of a service account.
func (a *API) createToken(c *gin.Context) {
	var b struct {
		Name             string               `json:"name"`
		ExpiresInSeconds *int64               `json:"expiresInSeconds"`
		Kind             string               `json:"kind"`
		Scopes           []account.Permission `json:"scopes"`
		User             *string              `json:"user"`
	}
	if !server.Bind(c, &b) {
		return
	}
	if b.Kind != "" && b.Kind != kindAll && b.Kind != kindPublic {
		server.Fail(c, errs.Field("kind", "must be %s or %s", kindAll, kindPublic))
		return
	}
	const mostSeconds = int64(1) << 33 // far above the limit, but a valid time.Duration
	expires := int64(auth.TokenLife / time.Second)
	if b.ExpiresInSeconds != nil {
		expires = *b.ExpiresInSeconds
	}
	who, _ := server.Identity(c)
	owner, err := a.ownerOf(who, b.User)
	if err != nil {
		server.Fail(c, err)
		return
	}
	token, record, err := a.cfg.Auth.NewToken(who, owner, auth.TokenWish{
		Name: b.Name, ExpiresIn: time.Duration(min(max(expires, -1), mostSeconds)) * time.Second,
		Scopes: b.Scopes, Public: b.Kind == kindPublic,
	})
	var rev int64
	if err == nil {
		rev, err = a.cfg.Operations.CreateAPIToken(c.Request.Context(), server.Actor(c), record, who.Permissions)
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	out := tokenOf(&record)
	out.Token = token
	server.ETag(c, rev)
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusCreated, out)
}

// ownerOf returns the identity that a new token is for: the caller, or the service account with a name.
func (a *API) ownerOf(who auth.Identity, name *string) (auth.Identity, error) {
	if name == nil || strings.ToLower(*name) == who.User {
		return who, nil
	}
	u, ok := a.cfg.Operations.Snapshot().Users.Get(strings.ToLower(*name))
	if !ok || !u.Service {
		return who, errs.Field("user", "must be your own name or that of a service account, not %q", *name)
	}
	return a.cfg.Auth.ServiceAccount(u), nil
}

func (a *API) deleteToken(c *gin.Context) {
	want, err := server.IfMatch(c)
	if err == nil {
		err = a.cfg.Operations.DeleteAPIToken(c.Request.Context(), server.Actor(c), c.Param("id"), want)
	}
	resource.SendDeleted(c, err)
}
