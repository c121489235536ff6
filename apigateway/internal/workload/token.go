package workload

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
)

// maxRefreshes limits an instance's short tokens per minute and gateway.
const maxRefreshes = 30

// ownToken is a short token in the format of existing plugins.
type ownToken struct {
	Token            string           `json:"token"`
	TokenID          string           `json:"tokenId"`
	InstanceID       fleet.InstanceID `json:"instanceId"`
	IssuedAt         time.Time        `json:"issuedAt"`
	ExpiresAt        time.Time        `json:"expiresAt"`
	ExpiresInSeconds int              `json:"expiresInSeconds"`
}

// refresh exchanges the environment's token or a short one for a new short token, which replaces the
// previous one. It needs no sequence number and no body: of two tokens, the later one is valid.
func (a *API) refresh(c *gin.Context) {
	if !allow(c, a.refreshes, "refreshes") {
		return
	}
	sent, i := a.cfg.Auth.RenewerOf(c.GetHeader("Authorization"))
	if i == nil { // the instance ended during the request
		server.Fail(c, errs.New(errs.Unauthenticated, "the token is no longer valid"))
		return
	}
	issued, err := a.cfg.Operations.IssueCredential(c.Request.Context(), sent)
	var token string
	if err == nil {
		token, err = a.cfg.Auth.ShortToken(issued, sent.Generation)
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusOK, ownToken{
		Token: token, TokenID: issued.TokenID, InstanceID: issued.Instance, IssuedAt: issued.IssuedAt, ExpiresAt: issued.ExpiresAt,
		ExpiresInSeconds: int(account.ShortTokenLife / time.Second),
	})
}
