package logs

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
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

// tail follows a log. next waits for more records, at most for keepAlive; then the chunk is empty. An
// error of next ends the stream: Canceled if the client disconnected, else the client gets its message.
type tail struct {
	next  func(ctx context.Context) (chunk, error)
	close func() error
}

// chunk has new records. gap is true if records before them are missing.
type chunk struct {
	records []telemetry.Record
	gap     bool
}

// issue sends a ticket for a stream, bound to the caller.
func (l *Logs) issue(c *gin.Context, stream string) {
	who, _ := server.Identity(c)
	l.cfg.Tickets.Send(c, account.Ticket{Credential: who.Credential(), Stream: stream})
}

// caller authenticates the request by its ticket or token.
func (l *Logs) caller(c *gin.Context, stream string) (account.Credential, error) {
	if text, ok := server.Ticket(c); ok {
		record, err := l.cfg.Tickets.Redeem(c.Request.Context(), text, stream)
		return record.Credential, err
	}
	identity, ok := server.Identity(c)
	switch {
	case !ok:
		return account.Credential{}, errs.New(errs.Unauthenticated, "send a ticket, or a token")
	case !identity.Can(auth.SystemLogsView):
		return account.Credential{}, errs.New(errs.Denied, "%s", identity.Lacks(auth.SystemLogsView))
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
	defer from.close() //nolint:errcheck // nothing was written
	out := sse{socket.NewSSE(c.Writer, l.cfg.WriteTimeout)}
	why := ""
	if out.Begin(connected) == nil {
		why = out.follow(ctx, from)
	}
	if cut := socket.RevokedReason(ctx); cut != "" {
		why = cut
	}
	if why != "" {
		out.Event("error", "", gin.H{"message": why})
		_ = out.Flush() // the stream ends anyway
	}
}

// sse writes the records of a log as server-sent events.
type sse struct{ *socket.SSE }

// follow writes new records. It returns a final message for the client, if any.
func (e sse) follow(ctx context.Context, from tail) (why string) {
	for {
		p, err := from.next(ctx)
		switch {
		case ctx.Err() != nil:
			return ""
		case err != nil:
			return "the log was interrupted, connect again: " + errs.MessageOf(err)
		}
		e.chunk(p)
		if e.Flush() != nil { // the client has disconnected or does not read
			return ""
		}
	}
}

func (e sse) chunk(p chunk) {
	if p.gap {
		e.Event("gap", "", gin.H{"message": "records before these are missing: they are no longer stored, or the ID came from a clock that is ahead"})
	}
	for _, r := range p.records {
		fmt.Fprintf(e, "id: %d\n", r.Seq)
		e.Event("log", "", r)
	}
	if !p.gap && len(p.records) == 0 {
		e.WriteString(": keep-alive\n\n")
	}
}
