package accounts

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/instanceops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet"
)

// pageCredentials is the size of the largest page of credentials.
const pageCredentials = 200

// credential is the record of an instance's token. The token itself is never shown.
type credential struct {
	TokenID    string           `json:"tokenId"`
	InstanceID string           `json:"instanceId"`
	UID        fleet.InstanceID `json:"uid"`
	// IssuedAt is null before the instance starts.
	IssuedAt *time.Time `json:"issuedAt"`
	// ExpiresAt is null for the token in the environment, which is valid while the instance lives.
	ExpiresAt *time.Time `json:"expiresAt"`
}

// credentialRoutes serve the tokens with which instances authenticate.
func (a *API) credentialRoutes() []server.Route {
	return server.Under("/api/v1/workloads/credentials",
		server.Get("", server.Needs(auth.TokensView), a.listCredentials),
		server.Delete("/:id", server.Needs(auth.TokensRevoke), a.revokeCredential).Unconditional(),
		server.Delete("/instances/:id", server.Needs(auth.TokensRevoke), a.revokeCredentials).Unconditional(),
	)
}

func credentialOf(c instanceops.Credential) credential {
	out := credential{TokenID: c.ID, InstanceID: c.Instance.Intent.Name, UID: c.Instance.Intent.ID}
	if !c.IssuedAt.IsZero() {
		out.IssuedAt = &c.IssuedAt
	}
	if !c.ExpiresAt.IsZero() {
		out.ExpiresAt = &c.ExpiresAt
	}
	return out
}

func (a *API) listCredentials(c *gin.Context) {
	server.SendPage(c, a.cfg.Operations.Credentials(a.cfg.Operations.Snapshot()), pageCredentials, credentialOf)
}

func (a *API) revokeCredential(c *gin.Context) {
	resource.SendDeleted(c, a.cfg.Operations.RevokeCredential(c.Request.Context(), server.Actor(c), c.Param("id")))
}

func (a *API) revokeCredentials(c *gin.Context) {
	i, revoked, err := a.cfg.Operations.RevokeCredentials(c.Request.Context(), server.Actor(c), c.Param("id"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{"instanceId": i.Intent.Name, "revokedCredentials": revoked})
}
