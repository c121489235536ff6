package console

import (
	"context"
	"encoding/json"
	"unicode/utf8"

	"github.com/coder/websocket"
	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// maxTyped bounds what a client may send at once, in bytes: more than a line may have,
// so that one that is too long is answered with what is wrong with it.
const maxTyped = 2 << 20

// message is one message to a client of an attached console.
type message struct {
	// Type is connected, output, suppressed, waiting, error or end.
	Type string `json:"type"`
	// Line is a line of output; Data its bytes where they are no UTF-8.
	Line *string `json:"line,omitempty"`
	Data []byte  `json:"data,omitempty"`
	// Offset is the byte offset after what the message tells of: where to go on.
	Offset int64 `json:"offset,omitempty"`
	// Lines is how many lines were left out.
	Lines    int64            `json:"lines,omitempty"`
	Message  string           `json:"message,omitempty"`
	Instance fleet.InstanceID `json:"instanceId,omitempty"`
	End      *client.End      `json:"end,omitempty"`
}

// Attach shows a console over a WebSocket and types what the client sends, one line a
// text message, verbatim. What it shows are JSON messages. Where it begins is told as
// for Stream.
func (s *Streams) Attach(c *gin.Context) {
	i, who, err := s.find(c)
	if err != nil {
		server.Fail(c, err)
		return
	}
	at, _, err := place(c.Request, backlog)
	if err != nil {
		server.Fail(c, err)
		return
	}
	s.room.Upgrade(c, who.credential, s.watch(who), maxTyped, func(ctx context.Context, conn *websocket.Conn) {
		showing, cancel := context.WithCancel(ctx)
		defer cancel()
		// What is read with a context that ends cuts the connection, and no reason would come through.
		reading, stop := context.WithCancel(context.WithoutCancel(ctx))
		defer stop()
		out := &attached{s.shown(showing, conn)}
		typed := make(chan struct{})
		go func() { defer close(typed); defer cancel(); s.typeLines(ctx, reading, i, who, conn, out) }()
		err := out.send(message{Type: "connected", Instance: i.Intent.ID})
		if err == nil {
			err = s.feed(showing, i.Intent.ID, at, out)
		}
		s.bye(showing, conn, err, out.reason)
		stop()
		<-typed
	})
}

// typeLines writes what the client sends to the console until it goes, which closes the
// connection, or reading ends. What it sent before is typed after that; not after ctx.
func (s *Streams) typeLines(ctx, reading context.Context, i *fleet.Instance, who viewer, conn *websocket.Conn, out *attached) {
	complain := func(err error) { _ = out.send(message{Type: "error", Message: complaint(err)}) } // a client that is gone is told nothing
	typing := &typist{complain: complain, send: func(ctx context.Context, line string) error {
		return s.cfg.Operations.SendCommand(ctx, who.by, string(i.Intent.ID), line)
	}}
	typing.begin(ctx)
	defer typing.end()
	for {
		kind, line, err := conn.Read(reading)
		if err != nil {
			_ = conn.CloseNow() // what is no WebSocket any more would keep it
			return
		}
		switch {
		case kind != websocket.MessageText:
			err = errs.Field("line", "must come as a text message of its own")
		case !s.types(who):
			err = errs.New(errs.Denied, "you may look at this console, but not type into it: that needs the permission %s", auth.InstancesCommand)
		case len(line) > utf8.UTFMax*operate.MaxCommand: // it has too many characters: no agent is asked
			err = typing.send(ctx, string(line))
		default:
			err = typing.add(string(line))
		}
		if err != nil {
			complain(err)
		}
	}
}

// complaint says what is wrong with a line, or why it cannot be typed.
func complaint(err error) string {
	if errs.FieldOf(err) != "" {
		return "the line " + errs.MessageOf(err)
	}
	return errs.MessageOf(err)
}

// attached is a console as messages of an attached client.
type attached struct{ shown }

func (a *attached) waiting(text string) error { return a.send(message{Type: "waiting", Message: text}) }

func (a *attached) frame(f client.Frame) error {
	switch {
	case f.End != nil:
		a.reason = reasonOf(f.End)
		return a.send(message{Type: "end", Offset: f.Next, End: f.End, Message: a.reason})
	case f.Skipped != nil:
		return a.send(message{Type: "suppressed", Offset: f.Next, Lines: f.Skipped.Lines, Message: note(f)})
	case len(f.Data) == 0:
		return a.alive()
	}
	for next, line := range lines(f) {
		m := message{Type: "output", Offset: next}
		if text := string(line); utf8.ValidString(text) {
			m.Line = &text
		} else {
			m.Data = line
		}
		if err := a.send(m); err != nil {
			return err
		}
	}
	return nil
}

func (a *attached) send(m message) error {
	b, err := json.Marshal(m)
	if err != nil {
		return errs.As(errs.Internal, "console.send", err)
	}
	return a.Text(b)
}
