package rest

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// apiToken is an API token's record; the token itself is shown once, when it is made.
type apiToken struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	User      string     `json:"user"`
	CreatedAt time.Time  `json:"createdAt"`
	ExpiresAt *time.Time `json:"expiresAt"` // null when it never expires
	// LastUsedAt is exact to an hour; null when it was not used.
	LastUsedAt *time.Time `json:"lastUsedAt"`
	// Kind is ALL or PUBLIC.
	Kind string `json:"kind"`
	// Scopes are null when the token has all that its user may.
	Scopes []fleet.Permission `json:"scopes"`
	Token  string             `json:"token,omitempty"`
}

// The kinds of API tokens: one has what its user may, or scopes of it; the other only reads.
const (
	kindAll    = "ALL"
	kindPublic = "PUBLIC"
)

func tokenOf(t *fleet.APIToken) apiToken {
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
	var all []*fleet.APIToken
	for _, t := range a.snapshot().APITokens.All() {
		all = append(all, t)
	}
	slices.SortFunc(all, func(x, y *fleet.APIToken) int { return cmp.Compare(y.ID, x.ID) }) // newest first
	server.SendPage(c, all, pageFew, tokenOf)
}

func (a *API) getToken(c *gin.Context) {
	t, ok := a.snapshot().APITokens.Get(c.Param("id"))
	if !ok {
		server.Fail(c, operate.ErrNoAPIToken)
		return
	}
	server.WholeETag(c, t.ModRev)
	c.JSON(http.StatusOK, tokenOf(t))
}

// createToken makes a token with rights of whoever asks.
func (a *API) createToken(c *gin.Context) {
	var b struct {
		Name             string             `json:"name"`
		ExpiresInSeconds *int64             `json:"expiresInSeconds"`
		Kind             string             `json:"kind"`
		Scopes           []fleet.Permission `json:"scopes"`
	}
	if !server.Bind(c, &b) {
		return
	}
	if b.Kind != "" && b.Kind != kindAll && b.Kind != kindPublic {
		server.Fail(c, errs.Field("kind", "must be %s or %s", kindAll, kindPublic))
		return
	}
	const mostSeconds = int64(1) << 33 // far past the limit, and no overflow as a duration
	expires := int64(auth.TokenLife / time.Second)
	if b.ExpiresInSeconds != nil {
		expires = *b.ExpiresInSeconds
	}
	who, _ := server.Identity(c)
	token, record, err := a.cfg.Auth.NewToken(who, auth.TokenWish{
		Name: b.Name, ExpiresIn: time.Duration(min(max(expires, -1), mostSeconds)) * time.Second,
		Scopes: b.Scopes, Public: b.Kind == kindPublic,
	})
	var rev int64
	if err == nil {
		rev, err = a.cfg.Operations.CreateAPIToken(c.Request.Context(), server.Actor(c), record)
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

func (a *API) deleteToken(c *gin.Context) {
	want, err := server.IfMatch(c)
	if err == nil {
		err = a.cfg.Operations.DeleteAPIToken(c.Request.Context(), server.Actor(c), c.Param("id"), want)
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.Status(http.StatusNoContent)
}
