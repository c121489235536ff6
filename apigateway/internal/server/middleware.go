package server

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"
	"github.com/oklog/ulid/v2"

	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
)

const (
	headerRequestID     = "X-Request-Id"
	headerCorrelationID = upstream.HeaderCorrelation
	maxCorrelationID    = 128
)

// ids sets the request ID, and the correlation ID from the client's header, sanitized. Both appear
// in the logs.
func ids(c *gin.Context) {
	id := ulid.Make().String()
	c.Header(headerRequestID, id)
	correlation := clean(c.GetHeader(headerCorrelationID))
	if correlation == "" {
		correlation = id
	}
	c.Header(headerCorrelationID, correlation)
	c.Request = c.Request.WithContext(upstream.Correlate(c.Request.Context(), correlation))
	c.Header("X-Content-Type-Options", "nosniff")
	watchBody(c)
}

// clean removes characters that are unsafe in headers and logs.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("-_.:/", r):
			return r
		}
		return -1
	}, s)
	return s[:min(len(s), maxCorrelationID)]
}

// recover turns a panic into a 500 that reveals only the request ID.
func (s *Server) recover(c *gin.Context) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(p) // aborts the connection in net/http
		}
		s.cfg.Log.Error("panic while serving", "panic", p, "route", c.FullPath(), "requestId", RequestID(c), "stack", string(debug.Stack()))
		if c.Writer.Written() {
			c.Abort()
			return
		}
		Fail(c, errs.New(errs.Internal, "panic"))
	}()
	c.Next()
}

// checkQuery refuses query strings that would be misread: invalid parameters would be dropped
// silently, and a misspelled dry run would be a real change.
func checkQuery(c *gin.Context) {
	if c.Request.URL.RawQuery == "" {
		return
	}
	q, err := url.ParseQuery(c.Request.URL.RawQuery)
	if err != nil {
		Fail(c, &errs.Error{Kind: errs.Malformed, Message: "the query is not well-formed: write % as %25, ; as %3B and & as %26", Err: err})
		return
	}
	for name, values := range q {
		if !utf8.ValidString(name + strings.Join(values, "")) {
			Fail(c, errs.New(errs.Malformed, "the query is not valid UTF-8"))
			return
		}
		if name != "dryRun" && strings.EqualFold(name, "dryRun") { // otherwise the change would be carried out
			Fail(c, &errs.Error{Kind: errs.Malformed, Message: "must be written with these capitals, as dryRun=true: nothing was changed", Field: "dryRun"})
			return
		}
	}
	if dry := q["dryRun"]; len(dry) > 0 && (len(dry) > 1 || dry[0] != "true" && dry[0] != "false") {
		Fail(c, &errs.Error{Kind: errs.Malformed, Message: "dryRun must be true or false, once", Field: "dryRun"})
	}
}

const (
	// drained (bytes) and lingering (time) limit how much of an oversized body is read after the
	// response. A client that is still sending when the connection closes would not see the response.
	drained   = 16 * wire.BodyLimit
	lingering = 3 * time.Second
	// An error response waits for the rest of a body of at most small bytes, for at most soon, because
	// closing the connection would force the client to open a new one.
	small = 4 << 10
	soon  = 100 * time.Millisecond
)

// bodyKey is the context key of the request's arrivingBody.
const bodyKey = "orrery.body"

// arrivingBody tracks how far a body was read.
type arrivingBody struct {
	io.ReadCloser
	// ended is true if the body was read to its end or failed; late if it did not arrive in time.
	ended, late atomic.Bool
}

// watchBody tracks how far the body is read.
func watchBody(c *gin.Context) {
	if c.Request.Body != nil && c.Request.Body != http.NoBody {
		b := &arrivingBody{ReadCloser: c.Request.Body}
		c.Request.Body = b
		c.Set(bodyKey, b)
	}
}

// Read reads and records the end of the body.
func (b *arrivingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.ended.Store(true)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		b.late.Store(true)
	}
	return n, err
}

// comes reads the rest of a small body. It returns false if the rest does not arrive soon, or if
// the body is large, of unknown length, or waits for 100 Continue.
func (b *arrivingBody) comes(c *gin.Context) bool {
	if n := c.Request.ContentLength; n <= 0 || n > small || c.GetHeader("Expect") != "" {
		return false
	}
	rc := http.NewResponseController(c.Writer)
	if rc.SetReadDeadline(time.Now().Add(soon)) != nil { // without a deadline the wait could be endless
		return false
	}
	if _, err := io.Copy(io.Discard, b.ReadCloser); err != nil {
		return false
	}
	_ = rc.SetReadDeadline(time.Time{}) // no more of this request is read
	b.ended.Store(true)
	return true
}

// leaveBody prepares an error response sent before the body was read completely. It closes the
// connection unless the rest arrives at once; otherwise the server would read the rest first.
func leaveBody(c *gin.Context) (late bool) {
	b, ok := c.Value(bodyKey).(*arrivingBody)
	if !ok {
		return false
	}
	if b.late.Load() || !b.ended.Load() && !b.comes(c) {
		c.Header("Connection", "close")
		_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(lingering)) // may be unsupported
	}
	return b.late.Load()
}

// refuseBody refuses a body that is too large before reading it, and closes the connection.
func refuseBody(c *gin.Context, limit int64) {
	rc := http.NewResponseController(c.Writer)
	_ = rc.EnableFullDuplex() // else the response waits for the body; may be unsupported
	c.Header("Connection", "close")
	Fail(c, errs.New(errs.TooLarge, "the body is larger than %d bytes: send less at once", limit))
	if c.GetHeader("Expect") != "" || rc.Flush() != nil { // with Expect, the client has not begun to send
		return
	}
	_ = rc.SetReadDeadline(time.Now().Add(lingering))
	_, _ = io.CopyN(io.Discard, c.Request.Body, drained)
}

// limitBody limits the request body and refuses media types that the route does not read.
func (s *Server) limitBody(c *gin.Context) {
	body := s.routeOf(c).Body
	limit := body.Limit
	if sent := c.GetHeader("Content-Type"); c.Request.ContentLength != 0 && !body.readable(sent) {
		Refuse(c, wire.Reply{
			Status: http.StatusUnsupportedMediaType, Code: "UNSUPPORTED_MEDIA_TYPE",
			Message: "the body is " + clean(sent) + ": send JSON as Content-Type: application/json, or YAML as application/yaml",
		})
		return
	}
	if c.Request.ContentLength > limit {
		refuseBody(c, limit)
		return
	}
	if c.Request.Body == http.NoBody {
		return
	}
	c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, limit)
	if limit > wire.BodyLimit {
		c.Request.Body = &slowBody{ReadCloser: c.Request.Body, rc: http.NewResponseController(c.Writer)}
	}
}

// limitUploads limits concurrent large uploads: a slow one occupies a connection and disk space for its
// whole duration.
func (s *Server) limitUploads(c *gin.Context) {
	if s.routeOf(c).Body.Limit < UploadLimit {
		return
	}
	leave, ok := s.uploads.enter(Actor(c).User)
	if !ok {
		Refuse(c, wire.Reply{
			Status: http.StatusTooManyRequests, Code: "TOO_MANY_UPLOADS", RetryAfter: wire.RetryAfter,
			Message: "too many uploads run at the same time: wait for one to end, or send the files as one archive",
		})
		return
	}
	defer leave()
	c.Next()
}

const corsMethods = "GET, POST, PUT, PATCH, DELETE, OPTIONS"

// cors handles CORS for the allowed origins and answers preflight requests. Credentials are never
// allowed: pages set the token header themselves. Pages of the gateway's own origin are always
// allowed. Pages of other origins cannot send changes, because some routes, such as the login,
// work without a token.
func (s *Server) cors(c *gin.Context) {
	origin := c.GetHeader("Origin")
	if origin == "" {
		return
	}
	c.Writer.Header().Add("Vary", "Origin")
	allowed := s.cfg.Settings.Now().Origins
	all := slices.Contains(allowed, "*")
	if !all && !slices.Contains(allowed, origin) {
		if changes(c.Request.Method) && !sameOrigin(c.Request, origin) {
			Fail(c, errs.New(errs.Denied, "pages of the origin %s may not call this API: an administrator can add it to http.cors.allowedOrigins", clean(origin)))
		}
		return
	}
	if all {
		origin = "*"
	}
	c.Header("Access-Control-Allow-Origin", origin)
	c.Header("Access-Control-Expose-Headers", "ETag, Retry-After, Warning, Orrery-Revision, X-Request-Id, X-Correlation-Id, X-Total-Count")
	if c.Request.Method == http.MethodOptions && c.GetHeader("Access-Control-Request-Method") != "" {
		c.Header("Access-Control-Allow-Methods", corsMethods)
		c.Header("Access-Control-Allow-Headers", "Authorization, Content-Type, If-Match, If-None-Match, Idempotency-Key, Last-Event-ID, Orrery-Revision, X-Correlation-Id")
		c.Header("Access-Control-Max-Age", "3600")
		c.AbortWithStatus(http.StatusNoContent)
	}
}

// changes reports whether requests with a method may change something.
func changes(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// sameOrigin reports whether a page of the gateway's own origin sent the request. A reverse proxy may
// replace the Host header, but a page cannot set Sec-Fetch-Site.
func sameOrigin(r *http.Request, origin string) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin" || site == "none"
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}
