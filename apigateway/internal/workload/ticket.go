package workload

import (
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
)

// maxTickets limits an instance's tickets per minute and gateway.
const maxTickets = 30

// ticket issues a ticket for the event stream, restricted to what the instance may see. The stream ends
// with the instance's generation or when its tokens are revoked.
func (a *API) ticket(c *gin.Context) {
	if !a.tickets.allow(c, "tickets") {
		return
	}
	sent, i := a.cfg.Auth.RenewerOf(c.GetHeader("Authorization"))
	if i == nil { // the instance ended during the request
		server.Fail(c, errs.New(errs.Unauthenticated, "the token is no longer good"))
		return
	}
	caller := account.Credential{Instance: sent.Instance, Root: sent.Root, Generation: sent.Generation}
	if !a.cfg.HasRoom(c, caller) {
		return
	}
	var ticket string
	err := txn.InTime(c.Request.Context(), func(ctx context.Context) (err error) {
		ticket, err = a.cfg.Tickets.Issue(ctx, account.Ticket{Credential: caller, Stream: events.StreamName})
		return err
	})
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusOK, gin.H{"ticket": ticket, "expiresInSeconds": int(a.cfg.Tickets.TTL() / time.Second)})
}
