package workload

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// maxRefreshes is how many short tokens an instance gets in a minute at a gateway.
const maxRefreshes = 30

// ownToken is a short token of an instance as known plugins read it.
type ownToken struct {
	Token            string           `json:"token"`
	TokenID          string           `json:"tokenId"`
	InstanceID       fleet.InstanceID `json:"instanceId"`
	IssuedAt         time.Time        `json:"issuedAt"`
	ExpiresAt        time.Time        `json:"expiresAt"`
	ExpiresInSeconds int              `json:"expiresInSeconds"`
}

// refresh exchanges the token that was sent, the environment's or a short one, for a short
// one, which takes the place of the short one before. It wants no number and no body: who
// asks twice gets two, of which the second is good.
func (a *API) refresh(c *gin.Context) {
	if !a.refreshes.allow(c, "refreshes") {
		return
	}
	sent, i := a.cfg.Auth.RenewerOf(c.GetHeader("Authorization"))
	if i == nil { // it ended since it was let in
		server.Fail(c, errs.New(errs.Unauthenticated, "the token is no longer good"))
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
		ExpiresInSeconds: int(fleet.ShortTokenLife / time.Second),
	})
}
