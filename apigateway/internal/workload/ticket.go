package workload

import (
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/events"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// maxTickets is how many tickets an instance gets in a minute at a gateway.
const maxTickets = 30

// ticket answers with a ticket for the stream of events, of which the instance sees what it
// may. The stream ends when the instance's generation does, or its tokens are revoked.
func (a *API) ticket(c *gin.Context) {
	if !a.tickets.allow(c, "tickets") {
		return
	}
	sent, i := a.cfg.Auth.RenewerOf(c.GetHeader("Authorization"))
	if i == nil { // it ended since it was let in
		server.Fail(c, errs.New(errs.Unauthenticated, "the token is no longer good"))
		return
	}
	caller := fleet.Credential{Instance: sent.Instance, Root: sent.Root, Generation: sent.Generation}
	if !a.cfg.HasRoom(c, caller) {
		return
	}
	var ticket string
	err := operate.InTime(c.Request.Context(), func(ctx context.Context) (err error) {
		ticket, err = a.cfg.Tickets.Issue(ctx, fleet.Ticket{Credential: caller, Stream: events.StreamName})
		return err
	})
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusOK, gin.H{"ticket": ticket, "expiresInSeconds": int(a.cfg.Tickets.TTL() / time.Second)})
}
