package rest

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
)

// secretView is a stored secret as it is read: never its values.
type secretView struct {
	Name string `json:"name"`
	// Keys are those of its values; "" is the value without a key.
	Keys    []string `json:"keys"`
	Version int64    `json:"version"`
	// UsedBy are the groups, templates and instances that refer to it.
	UsedBy    []string  `json:"usedBy"`
	UpdatedBy string    `json:"updatedBy"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// secretBody is what a client sends: one value, or several by key, in place of all there
// are. What can only be read is taken and ignored.
type secretBody struct {
	Name      *string           `json:"name"`
	Value     *string           `json:"value"`
	Values    map[string]string `json:"values"`
	Keys      json.RawMessage   `json:"keys"`
	Version   json.RawMessage   `json:"version"`
	UsedBy    json.RawMessage   `json:"usedBy"`
	UpdatedBy json.RawMessage   `json:"updatedBy"`
	CreatedAt json.RawMessage   `json:"createdAt"`
	UpdatedAt json.RawMessage   `json:"updatedAt"`
}

func secretViewOf(s operate.Secret) secretView {
	return secretView{
		Name: s.Name, Keys: *list(s.Keys), Version: s.Version, UsedBy: *list(s.UsedBy), UpdatedBy: s.By,
		CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
}

func (a *API) listSecrets(c *gin.Context) {
	server.SendPart(c, pageFew, func(from, n int) ([]operate.Secret, int, error) {
		return a.cfg.Operations.Secrets(c.Request.Context(), from, n)
	}, secretViewOf)
}

func (a *API) getSecret(c *gin.Context) {
	s, err := a.cfg.Operations.Secret(c.Request.Context(), c.Param("name"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	server.ETag(c, s.ModRev)
	c.JSON(http.StatusOK, secretViewOf(s))
}

// putSecret stores a secret in place of what was under its name.
func (a *API) putSecret(c *gin.Context) {
	var b secretBody
	if !server.Bind(c, &b) {
		return
	}
	w := operate.SecretWrite{Name: c.Param("name"), Values: map[string]string{}, DryRun: server.DryRun(c)}
	if b.Name != nil && *b.Name != w.Name {
		server.Fail(c, errs.Field("name", "is %q in the body and %q in the path: a secret cannot be renamed", *b.Name, w.Name))
		return
	}
	for key, value := range b.Values {
		w.Values[key] = value
	}
	if b.Value != nil {
		w.Values[""] = *b.Value
	}
	var err error
	if w.IfMatch, err = server.IfMatch(c); err != nil {
		server.Fail(c, err)
		return
	}
	written, before, err := a.cfg.Operations.WriteSecret(c.Request.Context(), server.Actor(c), w)
	if err != nil {
		server.Fail(c, err)
		return
	}
	status := http.StatusOK
	switch {
	case w.DryRun:
		c.JSON(status, gin.H{"dryRun": true, "created": before == 0, "secret": secretViewOf(written)})
		return
	case before == 0:
		status = http.StatusCreated
		c.Header("Location", "/api/v1/secrets/"+w.Name)
	}
	server.ETag(c, written.ModRev)
	c.JSON(status, secretViewOf(written))
}

func (a *API) deleteSecret(c *gin.Context) {
	rev, err := server.IfMatch(c)
	if err == nil {
		err = a.cfg.Operations.DeleteSecret(c.Request.Context(), server.Actor(c), c.Param("name"), rev, server.DryRun(c))
	}
	switch {
	case err != nil:
		server.Fail(c, err)
	case server.DryRun(c):
		c.JSON(http.StatusOK, gin.H{"dryRun": true})
	default:
		c.Status(http.StatusNoContent)
	}
}
