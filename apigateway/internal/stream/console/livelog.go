package console

import (
	"bytes"
	"context"

	"github.com/coder/websocket"
	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// liveBacklog is the number of lines that a live-log starts with.
const liveBacklog = 1000

// LiveLog serves the live-log of the Universe API: the last lines, then each new line, as text
// messages. It closes with the reason when the instance ends.
func (s *Streams) LiveLog(c *gin.Context) {
	i, who, err := s.find(c)
	if errs.Is(err, errs.NotFound) {
		s.pool.Upgrade(c, who.credential, s.watchAnywhere(who), maxTyped, func(_ context.Context, conn *websocket.Conn) {
			_ = conn.Close(websocket.StatusUnsupportedData, "Instance not found")
		})
		return
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	s.pool.Upgrade(c, who.credential, s.watch(who), maxTyped, func(ctx context.Context, conn *websocket.Conn) {
		showing, cancel := context.WithCancel(ctx)
		defer cancel()
		reading, stop := context.WithCancel(context.WithoutCancel(ctx)) // see Attach
		defer stop()
		defer context.AfterFunc(conn.CloseRead(reading), cancel)() // the client sends nothing
		out := &liveLog{s.newSink(showing, conn)}
		err := s.feed(showing, i.Intent.ID, client.Place{Offset: -1, Lines: liveBacklog}, out)
		s.closeSocket(showing, conn, err, out.reason)
	})
}

// liveLog is the sink of a live-log client.
type liveLog struct{ wsSink }

func (l *liveLog) waiting(string) error { return l.alive() }

func (l *liveLog) frame(f client.Frame) error {
	switch {
	case f.End != nil:
		l.reason = reasonOf(f.End)
		return nil
	case f.Skipped != nil:
		return l.Text([]byte("[" + note(f) + "]"))
	case len(f.Data) == 0:
		return l.alive()
	}
	for _, line := range lines(f) {
		if err := l.Text(bytes.ToValidUTF8(line, []byte("\uFFFD"))); err != nil {
			return err
		}
	}
	return nil
}
