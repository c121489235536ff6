package console

import (
	"context"
	"fmt"

	"github.com/coder/websocket"

	"github.com/orreryhq/orrery/apigateway/internal/socket"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// shown is a console that is shown over a WebSocket.
type shown struct {
	socket.Socket
	// alive is a sign of life, which is answered while the console is shown.
	alive func() error
	// reason is why the instance ended, once it has.
	reason string
}

// shown shows a console over a WebSocket until showing ends.
func (s *Streams) shown(showing context.Context, conn *websocket.Conn) shown {
	over := socket.Socket{Conn: conn, Timeout: s.cfg.WriteTimeout}
	return shown{Socket: over, alive: func() error { return over.Ping(showing) }}
}

// bye closes a WebSocket: with the reason the instance ended for, or because the
// gateway or the client goes.
func (s *Streams) bye(ctx context.Context, conn *websocket.Conn, err error, reason string) {
	switch {
	case reason != "":
		_ = conn.Close(websocket.StatusNormalClosure, socket.Clipped(reason))
	case s.room.Ending(), err != nil, ctx.Err() != nil:
		s.room.Bye(conn)
	}
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
