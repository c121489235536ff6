package console

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"

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
	out := sse{socket.NewSSE(c.Writer, s.cfg.WriteTimeout), encoding != ""}
	if out.Begin(gin.H{"message": "connected", "instanceId": i.Intent.ID, "name": i.Intent.Name}) == nil {
		_ = s.feed(ctx, i.Intent.ID, at, out) // fails if the client has disconnected
	}
	if why := socket.RevokedReason(ctx); why != "" {
		out.Event("error", "", gin.H{"message": why})
		_ = out.Flush() // the stream ends anyway
	}
}

// sse is the sink of a client of server-sent events.
type sse struct {
	*socket.SSE
	encoded bool
}

func (e sse) waiting(message string) error {
	e.Event("waiting", "", gin.H{"message": message})
	return e.Flush()
}

func (e sse) frame(f client.Frame) error {
	switch {
	case f.End != nil:
		e.Event("end", fmt.Sprintf("%d%s", f.Next, endMark), f.End)
	case f.Skipped != nil:
		e.Event("suppressed", fmt.Sprint(f.Next), gin.H{"message": note(f), "lines": f.Skipped.Lines, "from": f.From, "to": f.Next})
	case len(f.Data) > 0:
		for next, line := range lines(f) {
			e.line(next, line)
		}
	default:
		e.WriteString(": keep-alive\n\n")
	}
	return e.Flush()
}

// line appends a line. A CR is a line break in this format, so each part gets its own data field.
func (e sse) line(next int64, line []byte) {
	fmt.Fprintf(e, "id: %d\n", next)
	if e.encoded {
		e.WriteString("data: " + base64.StdEncoding.EncodeToString(line) + "\n\n")
		return
	}
	for part := range bytes.SplitSeq(bytes.ToValidUTF8(line, []byte("\uFFFD")), []byte{'\r'}) {
		e.WriteString("data: ")
		e.Write(part)
		e.WriteByte('\n')
	}
	e.WriteByte('\n')
}
