package logs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/stream/socket"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/telemetry"
)

// position is where a stream starts: after a record number or, if it is 0, with the last records.
type position struct {
	Query
	after int64
}

// tail follows a log.
type tail interface {
	// Next waits for more records, at most for keepAlive; then the chunk is empty. An error ends the
	// stream: Canceled if the client disconnected, else the client gets its message.
	Next(ctx context.Context) (chunk, error)
	io.Closer
}

// chunk has new records. gap is true if records before them are missing.
type chunk struct {
	records []telemetry.Record
	gap     bool
}

// ticket issues a ticket for a stream, bound to the caller.
func (l *Logs) ticket(stream string) gin.HandlerFunc {
	return func(c *gin.Context) { l.issue(c, stream) }
}

func (l *Logs) issue(c *gin.Context, stream string) {
	who, _ := server.Identity(c)
	var ticket string
	err := txn.InTime(c.Request.Context(), func(ctx context.Context) (err error) {
		ticket, err = l.cfg.Tickets.Issue(ctx, account.Ticket{Credential: who.Credential(), Stream: stream})
		return err
	})
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusOK, gin.H{"ticket": ticket, "expiresInSeconds": int(l.cfg.Tickets.TTL() / time.Second)})
}

// caller authenticates the request by its ticket or token.
func (l *Logs) caller(c *gin.Context, stream string) (who account.Credential, err error) {
	if text, ok := server.Ticket(c); ok {
		err = txn.InTime(c.Request.Context(), func(ctx context.Context) error {
			record, err := l.cfg.Tickets.Redeem(ctx, text, stream)
			who = record.Credential
			return err
		})
		return who, err
	}
	identity, ok := server.Identity(c)
	switch {
	case !ok:
		return who, errs.New(errs.Unauthenticated, "send a ticket, or a token")
	case !identity.Can(auth.SystemLogsView):
		return who, errs.New(errs.Denied, "%s", identity.Lacks(auth.SystemLogsView))
	}
	return identity.Credential(), nil
}

// parsePosition parses where a client wants to start. The header wins over the query, which a
// browser repeats unchanged when it reconnects.
func parsePosition(c *gin.Context) (at position, ok bool) {
	if at.Query, ok = QueryOf(c, "tail"); !ok {
		return at, false
	}
	if id := cmp.Or(c.GetHeader("Last-Event-ID"), c.Query("lastEventId")); id != "" {
		n, err := strconv.ParseInt(id, 10, 64)
		if err != nil || n <= 0 {
			server.Fail(c, &errs.Error{Kind: errs.Malformed, Field: "Last-Event-ID", Message: "Last-Event-ID must be the seq of a record, like the IDs of this stream"})
			return at, false
		}
		at.after = n
	}
	return at, true
}

// stream serves a log until the client disconnects or loses the permission.
func (l *Logs) stream(c *gin.Context, name string, connected gin.H, open func(context.Context, position) (tail, error)) {
	who, err := l.caller(c, name)
	if err != nil {
		server.Fail(c, err)
		return
	}
	at, ok := parsePosition(c)
	if !ok {
		return
	}
	ctx, leave, ok := l.pool.Enter(c, who, func(ctx context.Context) (context.Context, func(), error) {
		return l.cfg.Auth.While(ctx, who, auth.SystemLogsView)
	})
	if !ok {
		return
	}
	defer leave()
	from, err := open(ctx, at)
	if err != nil {
		server.Fail(c, err)
		return
	}
	defer from.Close()
	out := &sse{w: c.Writer, rc: http.NewResponseController(c.Writer), timeout: l.cfg.WriteTimeout}
	why := ""
	if out.begin(connected) == nil {
		why = out.follow(ctx, from)
	}
	if cut := socket.RevokedReason(ctx); cut != "" {
		why = cut
	}
	if why != "" {
		out.event("error", gin.H{"message": why})
		_ = out.flush() // the stream ends anyway
	}
}

// sse writes server-sent events.
type sse struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration
	out     bytes.Buffer
}

func (e *sse) begin(connected gin.H) error {
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")      // a buffering proxy would delay records
	_ = e.rc.SetReadDeadline(time.Time{}) // nothing more is read; may be unsupported
	e.w.WriteHeader(http.StatusOK)
	e.event("connected", connected)
	return e.flush()
}

// follow writes new records. It returns a final message for the client, if any.
func (e *sse) follow(ctx context.Context, from tail) (why string) {
	for {
		p, err := from.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return ""
		case err != nil:
			return "the log was interrupted, connect again: " + errs.MessageOf(err)
		}
		e.chunk(p)
		if e.flush() != nil { // the client has disconnected or does not read
			return ""
		}
	}
}

func (e *sse) chunk(p chunk) {
	if p.gap {
		e.event("gap", gin.H{"message": "records before these are missing: they are no longer stored, or the ID came from a clock that is ahead"})
	}
	for _, r := range p.records {
		fmt.Fprintf(&e.out, "id: %d\n", r.Seq)
		e.event("log", r)
	}
	if !p.gap && len(p.records) == 0 {
		e.out.WriteString(": keep-alive\n\n")
	}
}

// event adds an event.
func (e *sse) event(name string, data any) {
	b, err := json.Marshal(data)
	if err != nil { // unreachable: only strings and numbers
		b = []byte("{}")
	}
	fmt.Fprintf(&e.out, "event: %s\ndata: %s\n\n", name, b)
}

func (e *sse) flush() error {
	_ = e.rc.SetWriteDeadline(time.Now().Add(e.timeout)) // unsupported by test recorders only
	if _, err := e.out.WriteTo(e.w); err != nil {
		return err
	}
	return e.rc.Flush()
}
