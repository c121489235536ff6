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

// liveBacklog is how many lines a live-log begins with.
const liveBacklog = 1000

// LiveLog is the older dialect's live-log: the last lines, then each line as it is
// written, as a text message of its own. It closes when the instance ends, with the reason.
func (s *Streams) LiveLog(c *gin.Context) {
	i, who, err := s.find(c)
	if errs.Is(err, errs.NotFound) {
		s.room.Upgrade(c, who.credential, s.watch(who), maxTyped, func(_ context.Context, conn *websocket.Conn) {
			_ = conn.Close(websocket.StatusUnsupportedData, "Instance not found")
		})
		return
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	s.room.Upgrade(c, who.credential, s.watch(who), maxTyped, func(ctx context.Context, conn *websocket.Conn) {
		showing, cancel := context.WithCancel(ctx)
		defer cancel()
		reading, stop := context.WithCancel(context.WithoutCancel(ctx)) // see Attach
		defer stop()
		defer context.AfterFunc(conn.CloseRead(reading), cancel)() // it only shows
		out := &liveLog{s.shown(showing, conn)}
		err := s.feed(showing, i.Intent.ID, client.Place{Offset: -1, Lines: liveBacklog}, out)
		s.bye(showing, conn, err, out.reason)
	})
}

// liveLog is a console as a live-log.
type liveLog struct{ shown }

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
