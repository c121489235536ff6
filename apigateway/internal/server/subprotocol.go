package server

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
)

// Subprotocols with which browser pages, which cannot send headers, authenticate a WebSocket:
// "Sec-WebSocket-Protocol: orrery.bearer, <token>". The response repeats only the first word.
const (
	BearerProtocol = "orrery.bearer"
	TicketProtocol = "orrery.ticket"
)

// offered returns the value after a subprotocol in the list that a WebSocket client offers; "" for any
// other request.
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

// authorization returns the Authorization header, or its equivalent in the subprotocol.
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

// Ticket returns the stream ticket of a request, from the query or the subprotocol.
func Ticket(c *gin.Context) (ticket string, ok bool) {
	if ticket, ok = c.GetQuery("ticket"); ok {
		return ticket, true
	}
	ticket = offered(c.Request, TicketProtocol)
	return ticket, ticket != ""
}
