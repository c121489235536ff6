package console

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"
	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/nodeagent/client"
)

// maxReason is the length of the longest reason a close may carry, in bytes.
const maxReason = 123

// upgraded makes a WebSocket of a request and serves it until serve returns. What the
// client is told on refusal is the library's; a page of a foreign origin gets a 403.
func (s *Streams) upgraded(c *gin.Context, who viewer, serve func(ctx context.Context, conn *websocket.Conn)) {
	ctx, leave, ok := s.enter(c, who)
	if !ok {
		return
	}
	defer leave()
	conn, err := websocket.Accept(c.Writer, c.Request, &websocket.AcceptOptions{
		InsecureSkipVerify: slices.Contains(s.cfg.Origins, "*"), OriginPatterns: hosts(s.cfg.Origins),
	})
	if err != nil {
		c.Abort()
		_ = c.Error(err) // for the access log
		return
	}
	defer conn.CloseNow() //nolint:errcheck // it is closed already, or cut
	conn.SetReadLimit(maxTyped)
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	told := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(told)
		defer cancel()
		if why := expelled(ctx); why != "" { // first: when reading ends, so does the connection
			_ = conn.Close(websocket.StatusPolicyViolation, clipped(why))
		}
	})
	defer func() {
		if !stop() {
			<-told
		}
	}()
	serve(serving, conn)
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

// bye closes a WebSocket: with the reason the instance ended for, or because the
// gateway or the client goes.
func (s *Streams) bye(ctx context.Context, conn *websocket.Conn, err error, reason string) {
	switch {
	case reason != "":
		_ = conn.Close(websocket.StatusNormalClosure, clipped(reason))
	case s.ending.Err() != nil:
		_ = conn.Close(websocket.StatusGoingAway, "this replica is shutting down: connect again")
	case err != nil, ctx.Err() != nil:
		_ = conn.CloseNow()
	}
}

// clipped is a text cut to what a close may carry, between two characters.
func clipped(text string) string {
	if len(text) <= maxReason {
		return text
	}
	end := maxReason
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// reasonOf says in a line how an instance ended.
func reasonOf(e *client.End) string {
	switch {
	case e.State == "":
		return e.Message
	case e.Message == "":
		return fmt.Sprintf("%s (%s)", e.State, e.Reason)
	}
	return fmt.Sprintf("%s (%s): %s", e.State, e.Reason, e.Message)
}

// socket is a WebSocket that is written to.
type socket struct {
	conn    *websocket.Conn
	timeout time.Duration
	// reason is why the instance ended, once it has.
	reason string
}

func (s *socket) text(b []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageText, b)
}

// ping finds out whether the client is there, and keeps proxies from hanging up.
func (s *socket) ping() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	return s.conn.Ping(ctx)
}
