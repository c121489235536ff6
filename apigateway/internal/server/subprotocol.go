package server

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
)

// The subprotocols with which a WebSocket says who opens it, for pages in browsers, which
// can send no header: "Sec-WebSocket-Protocol: orrery.bearer, <token>". Only the first
// word is repeated in the answer.
const (
	BearerProtocol = "orrery.bearer"
	TicketProtocol = "orrery.ticket"
)

// offered is what follows a subprotocol in the list that the client of a WebSocket
// offers; "" for any other request.
func offered(r *http.Request, protocol string) string {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return ""
	}
	first, secret, _ := strings.Cut(strings.Join(r.Header.Values("Sec-WebSocket-Protocol"), ","), ",")
	if strings.TrimSpace(first) != protocol {
		return ""
	}
	secret, _, _ = strings.Cut(secret, ",")
	return strings.TrimSpace(secret)
}

// authorization is the request's header Authorization, or what stands for it.
func authorization(r *http.Request) string {
	header := r.Header.Get("Authorization")
	if header != "" {
		return header
	}
	if token := offered(r, BearerProtocol); token != "" {
		return "Bearer " + token
	}
	return ""
}

// Ticket is the ticket of a request for a stream: in its query, or as a subprotocol.
func Ticket(c *gin.Context) (ticket string, ok bool) {
	if ticket, ok = c.GetQuery("ticket"); ok {
		return ticket, true
	}
	ticket = offered(c.Request, TicketProtocol)
	return ticket, ticket != ""
}
