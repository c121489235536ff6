package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/wire"
)

const (
	// maxKey is the maximum length of an Idempotency-Key.
	maxKey = 255
	// underWay is how long a request without a stored response may still be running on another gateway.
	underWay = 10 * time.Second
	// maxWithheld limits the size of a stored response, in bytes. Larger ones are not stored.
	maxWithheld = 256 << 10
	// headerReplayed marks a response that was stored earlier.
	headerReplayed = "Idempotency-Replayed"
)

// undoneKey is the context key that Undone sets.
const undoneKey = "orrery.undone"

// keptHeaders are the response headers that are stored.
var keptHeaders = []string{"Content-Type", "Location", "ETag", "Warning", "Deprecation", headerRevision}

// once executes a request with an Idempotency-Key only once, over all gateways. GET ignores the key.
// The change and the key are stored in one transaction, the response right after. The template service
// remembers template changes itself; see Asked.
func (s *Server) once(c *gin.Context) {
	key := c.GetHeader(headerIdempotencyKey)
	if key == "" || c.FullPath() == "" {
		return
	}
	if len(key) > maxKey || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
		Fail(c, &errs.Error{Kind: errs.Malformed, Field: headerIdempotencyKey, Message: fmt.Sprintf("must be at most %d printable ASCII characters", maxKey)})
		return
	}
	if !changes(c.Request.Method) || DryRun(c) || Actor(c).User == "" || s.routeOf(c).Body.Raw {
		return
	}
	body, ok := whole(c)
	if !ok {
		return
	}
	n := &txn.Once{Name: operation(c), Request: body}
	if s.replayed(c, n) {
		return
	}
	// Finish the request even if the client disconnects: the response is for its repetition.
	c.Request = c.Request.WithContext(txn.CarriedOut(context.WithoutCancel(c.Request.Context()), n))
	w := &withheld{ResponseWriter: c.Writer}
	c.Writer = w
	defer func() { c.Writer = w.ResponseWriter }() // also in a panic
	c.Next()
	if n.Beaten() && !w.sent && s.replayed(c, n) {
		return
	}
	if n.Made() {
		if err := s.keep(c, n, w); err != nil {
			_ = c.Error(err) // only for the log: the change was made
		}
	}
	w.send()
}

// keep stores the response of a request that changed something, or that its outcome is unknown.
func (s *Server) keep(c *gin.Context, n *txn.Once, w *withheld) error {
	switch ctx := c.Request.Context(); {
	case w.Status() >= http.StatusMultipleChoices, c.GetBool(undoneKey):
		return s.cfg.Operations.Unknown(ctx, n)
	case w.sent, s.routeOf(c).Secret:
		return s.cfg.Operations.Answered(ctx, n, nil)
	default:
		return s.cfg.Operations.Answered(ctx, n, w.answer())
	}
}

// Undone marks the request's outcome as unknown or failed although the response has a success status.
// The request is then not remembered as done.
func Undone(c *gin.Context) { c.Set(undoneKey, true) }

// whole reads the body completely, makes it readable again and returns its fingerprint. ok is false
// if an error response was sent.
func whole(c *gin.Context) (told string, ok bool) {
	raw, err := io.ReadAll(c.Request.Body)
	if err != nil {
		kind := errs.Malformed
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			kind = errs.TooLarge
		}
		Fail(c, errs.WrapAs(kind, "server.whole", err))
		return "", false
	}
	if body, ok := c.Request.Body.(*fingerprinted); ok {
		told, body.whole = body.sum(), true
		body.ReadCloser = io.NopCloser(bytes.NewReader(raw))
	}
	return told, true
}

// replayed answers a request that was executed before, or refuses it. It returns false if the request
// should be executed now.
func (s *Server) replayed(c *gin.Context, n *txn.Once) bool {
	op, done, err := s.cfg.Operations.Remembered(c.Request.Context(), n.Name)
	if err == nil && !done {
		return false
	}
	if w, ok := c.Writer.(*withheld); ok { // another handling was faster: drop this response
		w.drop()
		c.Writer = w.ResponseWriter
	}
	switch {
	case err != nil:
		Fail(c, err)
	case op.Request != n.Request:
		Fail(c, errs.Field(headerIdempotencyKey, "was used within the last day for another request (%s): use a new one, or repeat that request unchanged", described(op)))
	default:
		s.replay(c, op)
	}
	return true
}

// replay sends the stored response, or an error that says why no response is stored.
func (s *Server) replay(c *gin.Context, op cluster.Operation) {
	a, known := s.cfg.Operations.AnswerOf(op)
	switch {
	case known:
		for name, value := range a.Header {
			c.Header(name, value)
		}
		c.Header(headerReplayed, "true")
		c.Abort()
		c.Status(a.Status)
		_, _ = c.Writer.Write(a.Body)
	case op.Stage == cluster.OperationUnknown, op.Stage == cluster.OperationBegun && s.cfg.Now().Sub(op.At) >= underWay:
		Refuse(c, wire.Reply{
			Status: http.StatusConflict, Code: "OUTCOME_UNKNOWN",
			Message: "this request was started (" + described(op) + "), but its outcome is unknown: check whether it was done, and request what is missing with another " + headerIdempotencyKey,
		})
	case op.Stage == cluster.OperationShown, s.routeOf(c).Secret && op.Stage == "":
		Refuse(c, wire.Reply{
			Status: http.StatusConflict, Code: "SHOWN_ONCE",
			Message: "this was done (" + described(op) + "), and the response contained a secret that is shown only once: if you lost it, undo the change and repeat the request with another " + headerIdempotencyKey,
		})
	case s.cfg.Now().Sub(op.At) < underWay:
		Refuse(c, wire.Reply{
			Status: http.StatusConflict, Code: "UNDER_WAY", RetryAfter: time.Second,
			Message: "the same request is being answered now: send it again in a moment",
		})
	default:
		Refuse(c, wire.Reply{
			Status: http.StatusConflict, Code: "ALREADY_DONE",
			Message: "this was done (" + described(op) + "), but the response was not stored: read the object that you changed",
		})
	}
}

// described returns a short description of an operation.
func described(op cluster.Operation) string {
	when := "at " + op.At.UTC().Format(time.RFC3339)
	if op.Action == "" {
		return when
	}
	what := strings.TrimSpace(op.Action + " of " + op.ResourceType + " " + op.ResourceID)
	if op.Details != "" {
		what += ": " + op.Details + ","
	}
	return what + " " + when
}

// withheld buffers a response until send. A response above maxWithheld is sent at once.
type withheld struct {
	gin.ResponseWriter
	body bytes.Buffer
	sent bool
}

// Write buffers or sends.
func (w *withheld) Write(p []byte) (int, error) {
	if !w.sent && w.body.Len()+len(p) > maxWithheld {
		w.send()
	}
	if w.sent {
		return w.ResponseWriter.Write(p)
	}
	return w.body.Write(p)
}

// WriteString is Write.
func (w *withheld) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// WriteHeaderNow does nothing while the response is buffered.
func (w *withheld) WriteHeaderNow() {
	if w.sent {
		w.ResponseWriter.WriteHeaderNow()
	}
}

// Flush sends the buffered response: the handler streams.
func (w *withheld) Flush() {
	w.send()
	w.ResponseWriter.Flush()
}

// Written reports whether a handler has answered.
func (w *withheld) Written() bool { return w.body.Len() > 0 || w.ResponseWriter.Written() }

// Unwrap is for http.ResponseController.
func (w *withheld) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// send sends the buffered response.
func (w *withheld) send() {
	if w.sent {
		return
	}
	w.sent = true
	if w.body.Len() > 0 {
		_, _ = w.ResponseWriter.Write(w.body.Bytes()) // the caller is gone if this fails
		w.body.Reset()
	}
}

// drop discards the buffered response.
func (w *withheld) drop() {
	w.body.Reset()
	for _, name := range keptHeaders {
		w.Header().Del(name)
	}
	w.Header().Del("Retry-After")
}

// answer returns the buffered response.
func (w *withheld) answer() *txn.Answer {
	a := &txn.Answer{Status: w.Status(), Header: map[string]string{}, Body: w.body.Bytes()}
	for _, name := range keptHeaders {
		if v := w.Header().Get(name); v != "" {
			a.Header[name] = v
		}
	}
	return a
}
