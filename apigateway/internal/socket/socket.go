package socket

import (
	"bufio"
	"context"
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
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
)

// maxReason is the length of the longest reason a close may carry, in bytes.
const maxReason = 123

// Upgrade makes a WebSocket of a request, which who opens, and serves it until serve returns;
// messages of clients have at most limit bytes. What is no request for one, or comes from a page of
// another origin than are allowed, is refused as every request is.
func (r *Room) Upgrade(c *gin.Context, who fleet.Credential, watch Watch, limit int64, serve func(ctx context.Context, conn *websocket.Conn)) {
	ctx, leave, ok := r.Enter(c, who, watch)
	if !ok {
		return
	}
	defer leave()
	origins := r.origins()
	answer := &withheld{ResponseWriter: c.Writer}
	conn, err := websocket.Accept(answer, c.Request, &websocket.AcceptOptions{
		InsecureSkipVerify: slices.Contains(origins, "*"), OriginPatterns: hosts(origins),
		Subprotocols: []string{server.BearerProtocol, server.TicketProtocol},
	})
	if err != nil {
		_ = c.Error(err) // for the access log
		refuse(c, answer.status)
		return
	}
	defer conn.CloseNow() //nolint:errcheck // it is closed already, or cut
	served := make(chan struct{})
	defer close(served)
	defer context.AfterFunc(r.ending, func() { cutAfter(answer.conn, served) })()
	conn.SetReadLimit(limit)
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	told := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(told)
		defer cancel()
		if why := Expelled(ctx); why != "" { // first: when reading ends, so does the connection
			_ = conn.Close(websocket.StatusPolicyViolation, Clipped(why))
		}
	})
	defer func() {
		if !stop() {
			<-told
		}
	}()
	serve(serving, conn)
}

// farewell is how long a client may take to answer the close of a gateway that ends.
const farewell = 2 * time.Second

// cutAfter closes what is below a WebSocket that is not served to its end in time.
func cutAfter(c net.Conn, served <-chan struct{}) {
	timer := time.NewTimer(farewell)
	defer timer.Stop()
	select {
	case <-timer.C:
		_ = c.Close()
	case <-served:
	}
}

// withheld is an answer of which a refusal is not sent: the library's is no envelope.
type withheld struct {
	gin.ResponseWriter
	// status is the refusal's; 0 without one.
	status int
	// conn is the connection, once it is the WebSocket's.
	conn net.Conn
}

// Hijack takes the connection.
func (w *withheld) Hijack() (c net.Conn, rw *bufio.ReadWriter, err error) {
	w.conn, rw, err = w.ResponseWriter.Hijack()
	return w.conn, rw, err
}

// WriteHeader sends the status of an upgrade.
func (w *withheld) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		w.status = status
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write writes what is not withheld.
func (w *withheld) Write(b []byte) (int, error) {
	if w.status != 0 {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}

// refuse tells the client what to do instead.
func refuse(c *gin.Context, status int) {
	switch status {
	case http.StatusUpgradeRequired:
		server.Refuse(c, wire.Reply{
			Status: status, Code: "UPGRADE_REQUIRED", Message: "this route is a WebSocket: open it with a client for those, by ws:// or wss://",
		})
	case http.StatusForbidden:
		server.Fail(c, errs.New(errs.Denied, "pages of this origin may not open a WebSocket here: have it allowed, or open it from a page of an origin that is"))
	case http.StatusBadRequest:
		server.Fail(c, errs.New(errs.Malformed, "the request does not open a WebSocket of version 13: it needs one Sec-WebSocket-Key, of 16 bytes in base64"))
	default:
		server.Fail(c, errs.New(errs.Internal, "the connection cannot become a WebSocket"))
	}
}

// hosts are the hosts of origins.
func hosts(origins []string) []string {
	var all []string
	for _, o := range origins {
		if u, err := url.Parse(o); err == nil && u.Host != "" {
			all = append(all, u.Host)
		}
	}
	return all
}

// Bye closes a WebSocket whose stream has ended without a reason of its own: because the
// gateway goes, or because the client went.
func (r *Room) Bye(conn *websocket.Conn) {
	if r.Ending() {
		_ = conn.Close(websocket.StatusGoingAway, "this replica is shutting down: connect again")
		return
	}
	_ = conn.CloseNow()
}

// Clipped is a text cut to what a close may carry, between two characters.
func Clipped(text string) string {
	if len(text) <= maxReason {
		return text
	}
	end := maxReason
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// Socket is a WebSocket that is written to.
type Socket struct {
	Conn *websocket.Conn
	// Timeout is how long one write may be stuck.
	Timeout time.Duration
}

// Text sends a text message.
func (s Socket) Text(b []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.Timeout)
	defer cancel()
	return s.Conn.Write(ctx, websocket.MessageText, b)
}

// Ping finds out whether the client is there, and keeps proxies from hanging up. It is not
// waited for once ctx ends.
func (s Socket) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	return s.Conn.Ping(ctx)
}
