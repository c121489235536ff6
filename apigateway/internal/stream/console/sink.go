package console

import (
	"context"
	"fmt"

	"github.com/coder/websocket"

	"github.com/orreryhq/orrery/apigateway/internal/stream/socket"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// wsSink is the common part of the sinks over a WebSocket.
type wsSink struct {
	socket.Socket
	// alive sends a ping. Its answer is awaited while the console is shown.
	alive func() error
	// reason is how the instance ended, once it has.
	reason string
}

// newSink returns a sink for a WebSocket. Its pings are canceled when showing ends.
func (s *Streams) newSink(showing context.Context, conn *websocket.Conn) wsSink {
	over := socket.Socket{Conn: conn, Timeout: s.cfg.WriteTimeout}
	return wsSink{Socket: over, alive: func() error { return over.Ping(showing) }}
}

// closeSocket closes a WebSocket: with the reason why the instance ended, or because the gateway
// shuts down or the client has disconnected.
func (s *Streams) closeSocket(ctx context.Context, conn *websocket.Conn, err error, reason string) {
	switch {
	case reason != "":
		_ = conn.Close(websocket.StatusNormalClosure, socket.Truncated(reason))
	case s.pool.Closing(), err != nil, ctx.Err() != nil:
		s.pool.CloseEnded(conn)
	}
}

// reasonOf describes in one line how an instance ended.
func reasonOf(e *client.End) string {
	switch {
	case e.State == "":
		return e.Message
	case e.Message == "":
		return fmt.Sprintf("%s (%s)", e.State, e.Reason)
	}
	return fmt.Sprintf("%s (%s): %s", e.State, e.Reason, e.Message)
}
