package rest

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// apiToken is an API token's record; the token itself is shown once, when it is made.
type apiToken struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	User      string     `json:"user"`
	CreatedAt time.Time  `json:"createdAt"`
	ExpiresAt *time.Time `json:"expiresAt"` // null when it never expires
	Token     string     `json:"token,omitempty"`
}

func tokenOf(t *fleet.APIToken) apiToken {
	out := apiToken{ID: t.ID, Name: t.Name, User: t.User, CreatedAt: t.CreatedAt}
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

// createToken makes a token with the rights of whoever asks.
func (a *API) createToken(c *gin.Context) {
	var b struct {
		Name             string `json:"name"`
		ExpiresInSeconds int64  `json:"expiresInSeconds"`
	}
	if !server.Bind(c, &b) {
		return
	}
	const mostSeconds = int64(1) << 33 // far past the limit, and no overflow as a duration
	who, _ := server.Identity(c)
	expires := time.Duration(min(max(b.ExpiresInSeconds, -1), mostSeconds)) * time.Second
	token, record, err := a.cfg.Auth.NewToken(who, b.Name, expires)
	if err == nil {
		_, err = a.cfg.Operations.Record(c.Request.Context(), server.Actor(c), "api-token.create", "api-token", record.ID, record.Name,
			store.Create(store.APITokenKey(record.ID), record))
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	out := tokenOf(&record)
	out.Token = token
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusCreated, out)
}

func (a *API) deleteToken(c *gin.Context) {
	id := c.Param("id")
	t, ok := a.snapshot().APITokens.Get(id)
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "there is no such API token"))
		return
	}
	_, err := a.cfg.Operations.Record(c.Request.Context(), server.Actor(c), "api-token.delete", "api-token", id, t.Name,
		store.Remove(store.APITokenKey(id), t.ModRev))
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.Status(http.StatusNoContent)
}
