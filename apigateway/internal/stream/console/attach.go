package console

import (
	"context"
	"encoding/json"
	"unicode/utf8"

	"github.com/coder/websocket"
	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/instanceops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// maxTyped limits a message of a client, in bytes. It is larger than the longest allowed line, so
// that a line that is too long gets a proper error.
const maxTyped = 2 << 20

// message is a JSON message to an attached client.
type message struct {
	// Type is connected, output, suppressed, waiting, error or end.
	Type string `json:"type"`
	// Line is a line of output. Data has its bytes instead if they are not UTF-8.
	Line *string `json:"line,omitempty"`
	Data []byte  `json:"data,omitempty"`
	// Offset is the byte offset after the reported output: where to resume.
	Offset int64 `json:"offset,omitempty"`
	// Lines is the number of omitted lines.
	Lines    int64            `json:"lines,omitempty"`
	Message  string           `json:"message,omitempty"`
	Instance fleet.InstanceID `json:"instanceId,omitempty"`
	End      *client.End      `json:"end,omitempty"`
}

// Attach serves a console over a WebSocket. It sends JSON messages. Each text message of the client
// is one line, which is typed unchanged. The start position is the same as for Stream.
func (s *Streams) Attach(c *gin.Context) {
	i, who, err := s.find(c)
	if err != nil {
		server.Fail(c, err)
		return
	}
	at, _, err := startOf(c.Request, backlog)
	if err != nil {
		server.Fail(c, err)
		return
	}
	s.pool.Upgrade(c, who.credential, s.watch(who), maxTyped, func(ctx context.Context, conn *websocket.Conn) {
		showing, cancel := context.WithCancel(ctx)
		defer cancel()
		// Canceling the read context would cut the connection without a close reason.
		reading, stop := context.WithCancel(context.WithoutCancel(ctx))
		defer stop()
		out := &attached{s.newSink(showing, conn)}
		typed := make(chan struct{})
		go func() { defer close(typed); defer cancel(); s.typeLines(ctx, reading, i, who, conn, out) }()
		err := out.send(message{Type: "connected", Instance: i.Intent.ID})
		if err == nil {
			err = s.feed(showing, i.Intent.ID, at, out)
		}
		s.closeSocket(showing, conn, err, out.reason)
		stop()
		<-typed
	})
}

// typeLines writes the client's lines to the console until the client disconnects, which closes the
// connection, or until reading ends. Lines already received are typed even after the client has
// disconnected, but not after ctx ends.
func (s *Streams) typeLines(ctx, reading context.Context, i *fleet.Instance, who viewer, conn *websocket.Conn, out *attached) {
	complain := func(err error) { _ = out.send(message{Type: "error", Message: complaint(err)}) } // fails if the client has disconnected
	typing := &typist{complain: complain, send: func(ctx context.Context, line string) error {
		return s.cfg.Operations.SendCommand(ctx, who.by, string(i.Intent.ID), line)
	}}
	typing.begin(ctx)
	defer typing.end()
	for {
		kind, line, err := conn.Read(reading)
		if err != nil {
			_ = conn.CloseNow() // releases a broken connection
			return
		}
		switch {
		case kind != websocket.MessageText:
			err = errs.Field("line", "must be sent as a text message of its own")
		case !s.types(who):
			err = errs.New(errs.Denied, "you may read this console but not type: typing needs the permission %s", auth.InstancesCommand)
		case len(line) > utf8.UTFMax*instanceops.MaxCommand: // too long in any case: fails without asking the agent
			err = typing.send(ctx, string(line))
		default:
			err = typing.add(string(line))
		}
		if err != nil {
			complain(err)
		}
	}
}

// complaint returns the message for a line that was refused or could not be typed.
func complaint(err error) string {
	if errs.FieldOf(err) != "" {
		return "the line " + errs.MessageOf(err)
	}
	return errs.MessageOf(err)
}

// attached is the sink of an attached client.
type attached struct{ wsSink }

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
		return errs.WrapAs(errs.Internal, "console.send", err)
	}
	return a.Text(b)
}
