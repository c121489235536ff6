package console

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/stream/socket"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// Stream serves a console as server-sent events: one message per line, whose ID is the offset after
// the line. With ?encoding=base64 the bytes of a line are sent unchanged. Otherwise a CR inside a
// line is sent as a line break and invalid UTF-8 is replaced.
func (s *Streams) Stream(c *gin.Context) {
	i, who, err := s.find(c)
	if err != nil {
		server.Fail(c, err)
		return
	}
	at, over, err := startOf(c.Request, backlog)
	encoding := c.Query("encoding")
	if err == nil && encoding != "" && encoding != "base64" {
		err = &errs.Error{Kind: errs.Malformed, Field: "encoding", Message: "encoding must be base64 or absent"}
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	if over && i.Terminal() { // 204 tells a browser not to reconnect
		c.Status(http.StatusNoContent)
		return
	}
	ctx, leave, ok := s.pool.Enter(c, who.credential, s.watch(who))
	if !ok {
		return
	}
	defer leave()
	out := &sse{w: c.Writer, rc: http.NewResponseController(c.Writer), timeout: s.cfg.WriteTimeout, encoded: encoding != ""}
	if out.begin(gin.H{"message": "connected", "instanceId": i.Intent.ID, "name": i.Intent.Name}) == nil {
		_ = s.feed(ctx, i.Intent.ID, at, out) // fails if the client has disconnected
	}
	if why := socket.RevokedReason(ctx); why != "" {
		out.event("error", "", gin.H{"message": why})
		_ = out.flush() // the stream ends anyway
	}
}

// sse is the sink of a client of server-sent events.
type sse struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration
	encoded bool
	out     bytes.Buffer
}

func (e *sse) begin(connected gin.H) error {
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")      // a buffering proxy would delay lines
	_ = e.rc.SetReadDeadline(time.Time{}) // nothing more is read; may be unsupported
	e.w.WriteHeader(http.StatusOK)
	e.event("connected", "", connected)
	return e.flush()
}

func (e *sse) waiting(message string) error {
	e.event("waiting", "", gin.H{"message": message})
	return e.flush()
}

func (e *sse) frame(f client.Frame) error {
	switch {
	case f.End != nil:
		e.event("end", fmt.Sprintf("%d%s", f.Next, endMark), f.End)
	case f.Skipped != nil:
		e.event("suppressed", fmt.Sprint(f.Next), gin.H{"message": note(f), "lines": f.Skipped.Lines, "from": f.From, "to": f.Next})
	case len(f.Data) > 0:
		for next, line := range lines(f) {
			e.line(next, line)
		}
	default:
		e.out.WriteString(": keep-alive\n\n")
	}
	return e.flush()
}

// line appends a line. A CR is a line break in this format, so each part gets its own data field.
func (e *sse) line(next int64, line []byte) {
	fmt.Fprintf(&e.out, "id: %d\n", next)
	if e.encoded {
		e.out.WriteString("data: " + base64.StdEncoding.EncodeToString(line) + "\n\n")
		return
	}
	for part := range bytes.SplitSeq(bytes.ToValidUTF8(line, []byte("\uFFFD")), []byte{'\r'}) {
		e.out.WriteString("data: ")
		e.out.Write(part)
		e.out.WriteByte('\n')
	}
	e.out.WriteByte('\n')
}

// event appends an event other than output.
func (e *sse) event(name, id string, data any) {
	b, err := json.Marshal(data)
	if err != nil { // unreachable: only strings and numbers
		b = []byte("{}")
	}
	fmt.Fprintf(&e.out, "event: %s\n", name)
	if id != "" {
		fmt.Fprintf(&e.out, "id: %s\n", id)
	}
	fmt.Fprintf(&e.out, "data: %s\n\n", b)
}

func (e *sse) flush() error {
	_ = e.rc.SetWriteDeadline(time.Now().Add(e.timeout)) // unsupported by test recorders only
	if _, err := e.out.WriteTo(e.w); err != nil {
		return err
	}
	return e.rc.Flush()
}
