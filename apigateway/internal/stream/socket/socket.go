package socket

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"
	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/wire"
)

// maxReason is the maximum length of a close reason, in bytes.
const maxReason = 123

// Upgrade turns a request into a WebSocket and serves it until serve returns. Client messages are
// limited to limit bytes. A request that is not a WebSocket handshake, or comes from a page of a
// forbidden origin, gets a normal error response.
func (p *Pool) Upgrade(c *gin.Context, who account.Credential, watch Watch, limit int64, serve func(ctx context.Context, conn *websocket.Conn)) {
	ctx, leave, ok := p.Enter(c, who, watch)
	if !ok {
		return
	}
	defer leave()
	origins := p.origins()
	answer := &upgradeWriter{ResponseWriter: c.Writer}
	conn, err := websocket.Accept(answer, c.Request, &websocket.AcceptOptions{
		InsecureSkipVerify: slices.Contains(origins, "*"), OriginPatterns: hosts(origins),
		Subprotocols: []string{server.BearerProtocol, server.TicketProtocol},
	})
	if err != nil {
		_ = c.Error(err) // for the access log
		refuse(c, answer.status)
		return
	}
	defer conn.CloseNow() //nolint:errcheck // the connection is already closed or cut
	served := make(chan struct{})
	defer close(served)
	defer context.AfterFunc(p.ending, func() { cutAfter(answer.conn, served) })()
	conn.SetReadLimit(limit)
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	told := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(told)
		defer cancel()
		if why := RevokedReason(ctx); why != "" { // before cancel, because canceling a read cuts the connection
			_ = conn.Close(websocket.StatusPolicyViolation, Truncated(why))
		}
	})
	defer func() {
		if !stop() {
			<-told
		}
	}()
	serve(serving, conn)
}

// farewell is how long a client may take to answer the close message on shutdown.
const farewell = 2 * time.Second

// cutAfter closes the connection of a WebSocket that does not end in time.
func cutAfter(c net.Conn, served <-chan struct{}) {
	timer := time.NewTimer(farewell)
	defer timer.Stop()
	select {
	case <-timer.C:
		_ = c.Close()
	case <-served:
	}
}

// upgradeWriter discards error responses of the WebSocket library, which have the wrong format.
type upgradeWriter struct {
	gin.ResponseWriter
	// status is that of the discarded error response, or 0.
	status int
	// conn is the connection after the upgrade.
	conn net.Conn
}

// Hijack takes over the connection.
func (w *upgradeWriter) Hijack() (c net.Conn, rw *bufio.ReadWriter, err error) {
	if c, rw, err = w.ResponseWriter.Hijack(); err == nil {
		w.conn = upgraded{c}
	}
	return w.conn, rw, err
}

// errDisconnected means that the client has ended the connection.
var errDisconnected = errors.New("the client has disconnected")

// upgraded is a connection that ends with errDisconnected. The WebSocket library takes io.EOF
// within a message for the end of the message, and would return a part of it as the whole.
type upgraded struct{ net.Conn }

// Read reads.
func (c upgraded) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errDisconnected
	}
	return n, err
}

// WriteHeader sends the status of an upgrade and records that of an error.
func (w *upgradeWriter) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		w.status = status
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write discards the body of an error response.
func (w *upgradeWriter) Write(b []byte) (int, error) {
	if w.status != 0 {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}

// refuse sends the error response for a failed upgrade.
func refuse(c *gin.Context, status int) {
	switch status {
	case http.StatusUpgradeRequired:
		server.Refuse(c, wire.Reply{
			Status: status, Code: "UPGRADE_REQUIRED", Message: "this route is a WebSocket: open it with a WebSocket client, using ws:// or wss://",
		})
	case http.StatusForbidden:
		server.Fail(c, errs.New(errs.Denied, "pages of this origin may not open a WebSocket here: add the origin to the allowed origins, or use a page of an allowed one"))
	case http.StatusBadRequest:
		server.Fail(c, errs.New(errs.Malformed, "the request is not a WebSocket handshake of version 13: it needs one Sec-WebSocket-Key of 16 bytes in base64"))
	default:
		server.Fail(c, errs.New(errs.Internal, "the connection cannot be upgraded to a WebSocket"))
	}
}

// hosts returns the hosts of origins.
func hosts(origins []string) []string {
	var all []string
	for _, o := range origins {
		if u, err := url.Parse(o); err == nil && u.Host != "" {
			all = append(all, u.Host)
		}
	}
	return all
}

// CloseEnded closes a WebSocket whose stream ended without a reason of its own: because the gateway
// shuts down or the client disconnected.
func (p *Pool) CloseEnded(conn *websocket.Conn) {
	if p.Closing() {
		_ = conn.Close(websocket.StatusGoingAway, "this replica is shutting down: connect again")
		return
	}
	_ = conn.CloseNow()
}

// Truncated cuts a text to the maximum length of a close reason, between two characters.
func Truncated(text string) string {
	if len(text) <= maxReason {
		return text
	}
	end := maxReason
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// Socket writes to a WebSocket.
type Socket struct {
	Conn *websocket.Conn
	// Timeout limits one write.
	Timeout time.Duration
}

// Text sends a text message.
func (s Socket) Text(b []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.Timeout)
	defer cancel()
	return s.Conn.Write(ctx, websocket.MessageText, b)
}

// Ping checks that the client is there, and keeps proxies from closing an idle connection. It stops
// waiting when ctx ends.
func (s Socket) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	return s.Conn.Ping(ctx)
}
