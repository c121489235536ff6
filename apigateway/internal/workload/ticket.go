package workload

import (
	"github.com/gin-gonic/gin"

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
	if !allow(c, a.tickets, "tickets") {
		return
	}
	sent, i := a.cfg.Auth.RenewerOf(c.GetHeader("Authorization"))
	if i == nil { // the instance ended during the request
		server.Fail(c, errs.New(errs.Unauthenticated, "the token is no longer valid"))
		return
	}
	caller := account.Credential{Instance: sent.Instance, Root: sent.Root, Generation: sent.Generation}
	if !a.cfg.HasCapacity(c, caller) {
		return
	}
	a.cfg.Tickets.Send(c, account.Ticket{Credential: caller, Stream: events.StreamName})
}
