package system

import (
	"encoding/json"
	"maps"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/clusterops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
)

// secretView is a stored secret in an answer. It never has values.
type secretView struct {
	Name string `json:"name"`
	// Keys are the keys of its values. "" is the key of a single value.
	Keys []string `json:"keys"`
	// Selector selects the groups that may use it by their labels.
	Selector string `json:"selector"`
	Version  int64  `json:"version"`
	// UsedBy are the groups, templates and instances that refer to it.
	UsedBy    []string  `json:"usedBy"`
	UpdatedBy string    `json:"updatedBy"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// secretBody is the body of a request: a single value, or several by key, which replace all values. A
// body without values keeps the stored values, and a body without a selector keeps the stored selector.
// It accepts the read-only fields so that a client can send back what it read.
type secretBody struct {
	Name      *string           `json:"name"`
	Value     *string           `json:"value"`
	Values    map[string]string `json:"values"`
	Selector  *string           `json:"selector"`
	Keys      json.RawMessage   `json:"keys"`
	Version   json.RawMessage   `json:"version"`
	UsedBy    json.RawMessage   `json:"usedBy"`
	UpdatedBy json.RawMessage   `json:"updatedBy"`
	CreatedAt json.RawMessage   `json:"createdAt"`
	UpdatedAt json.RawMessage   `json:"updatedAt"`
}

// secretRoutes serve stored secrets. No answer has their values.
func (a *API) secretRoutes() []server.Route {
	return []server.Route{
		server.Get("/api/v1/secrets", server.Needs(auth.SystemSettings), a.listSecrets),
		server.Get("/api/v1/secrets/:name", server.Needs(auth.SystemSettings), a.getSecret),
		server.Put("/api/v1/secrets/:name", server.Needs(auth.SystemSettings), a.putSecret).Rehearses().Makes(),
		server.Delete("/api/v1/secrets/:name", server.Needs(auth.SystemSettings), a.deleteSecret).Rehearses(),
	}
}

func secretViewOf(s clusterops.Secret) secretView {
	return secretView{
		Name: s.Name, Keys: *resource.List(s.Keys), Selector: s.Selector.String(), Version: s.Version, UsedBy: *resource.List(s.UsedBy), UpdatedBy: s.By,
		CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
}

func (a *API) listSecrets(c *gin.Context) {
	server.SendPart(c, resource.SmallPage, func(from, n int) ([]clusterops.Secret, int, error) {
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

// putSecret creates or replaces a secret.
func (a *API) putSecret(c *gin.Context) {
	var b secretBody
	name, rev, ok := resource.BindRecord(c, "secret", &b, func() *string { return b.Name })
	if !ok {
		return
	}
	w := clusterops.SecretWrite{Name: name, Values: b.Values, Selector: b.Selector, IfMatch: rev, DryRun: server.DryRun(c)}
	if b.Value != nil {
		w.Values = map[string]string{}
		maps.Copy(w.Values, b.Values)
		w.Values[""] = *b.Value
	}
	written, before, err := a.cfg.Operations.WriteSecret(c.Request.Context(), server.Actor(c), w)
	switch shown := secretViewOf(written); {
	case err != nil:
		server.Fail(c, err)
	case w.DryRun:
		c.JSON(http.StatusOK, gin.H{"dryRun": true, "created": before == 0, "secret": shown})
	default:
		resource.SendPut(c, before == 0, written.ModRev, shown)
	}
}

func (a *API) deleteSecret(c *gin.Context) {
	resource.DeleteRecord(c, a.cfg.Operations.DeleteSecret, gin.H{"dryRun": true})
}
