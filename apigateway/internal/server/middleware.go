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

// ids gives the request its id and repeats the caller's own, cleaned, so that both
// can be found in logs.
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

// clean keeps what is harmless in headers and logs.
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

// recover turns a panic into a 500 that tells nothing but the request's id.
func (s *Server) recover(c *gin.Context) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(p) // net/http's own way to hang up
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

// queries refuses what would be read otherwise than it was meant: a parameter that
// cannot be parsed would be dropped in silence, and a dry run that was not
// understood would be a real one.
func queries(c *gin.Context) {
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
		if name != "dryRun" && strings.EqualFold(name, "dryRun") { // left alone, the change would be a real one
			Fail(c, &errs.Error{Kind: errs.Malformed, Message: "a dry run is asked for by dryRun=true, in these letters: nothing was changed", Field: "dryRun"})
			return
		}
	}
	if dry := q["dryRun"]; len(dry) > 0 && (len(dry) > 1 || dry[0] != "true" && dry[0] != "false") {
		Fail(c, &errs.Error{Kind: errs.Malformed, Message: "dryRun must be true or false, once", Field: "dryRun"})
	}
}

const (
	// drained is how much of a body that is too large is read after the answer, in bytes,
	// and lingering how long: a client that is still sending when the connection is closed
	// would not see the answer.
	drained   = 16 * wire.BodyLimit
	lingering = 3 * time.Second
	// A refusal waits for the rest of a body of at most small bytes, which as a rule has come
	// with the headers, and not longer than soon: a connection that is closed has to be made anew.
	small = 4 << 10
	soon  = 100 * time.Millisecond
)

// bodyKey is where a request's context has its arrivingBody.
const bodyKey = "orrery.body"

// arrivingBody is a body of which is known how much of it came.
type arrivingBody struct {
	io.ReadCloser
	// ended is true when all of it was read, or nothing more can be; late when it did not come
	// in time.
	ended, late atomic.Bool
}

// watchBody has it known how much of the body came.
func watchBody(c *gin.Context) {
	if c.Request.Body != nil && c.Request.Body != http.NoBody {
		b := &arrivingBody{ReadCloser: c.Request.Body}
		c.Request.Body = b
		c.Set(bodyKey, b)
	}
}

// Read reads on.
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

// comes reads the rest of a small body. It is false when that does not come soon, and when
// nobody can tell: what is large, or has no length, or is sent only when it is asked for.
func (b *arrivingBody) comes(c *gin.Context) bool {
	if n := c.Request.ContentLength; n <= 0 || n > small || c.GetHeader("Expect") != "" {
		return false
	}
	rc := http.NewResponseController(c.Writer)
	if rc.SetReadDeadline(time.Now().Add(soon)) != nil { // then it could be waited for without an end
		return false
	}
	if _, err := io.Copy(io.Discard, b.ReadCloser); err != nil {
		return false
	}
	_ = rc.SetReadDeadline(time.Time{}) // nothing more is read of this request
	b.ended.Store(true)
	return true
}

// leaveBody has a refusal wait for nothing more of the body than comes at once: it closes the
// connection, else all of that would have to come before the answer goes.
func leaveBody(c *gin.Context) (late bool) {
	b, ok := c.Value(bodyKey).(*arrivingBody)
	if !ok {
		return false
	}
	if b.late.Load() || !b.ended.Load() && !b.comes(c) {
		c.Header("Connection", "close")
		_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(lingering)) // unsupported is as good
	}
	return b.late.Load()
}

// refuseBody answers that a body is too large before any of it is read, and closes the
// connection.
func refuseBody(c *gin.Context, limit int64) {
	rc := http.NewResponseController(c.Writer)
	_ = rc.EnableFullDuplex() // else the answer waits for the body; unsupported is as good
	c.Header("Connection", "close")
	Fail(c, errs.New(errs.TooLarge, "the body is larger than %d bytes: send less at once", limit))
	if c.GetHeader("Expect") != "" || rc.Flush() != nil { // who asks first has not begun to send
		return
	}
	_ = rc.SetReadDeadline(time.Now().Add(lingering))
	_, _ = io.CopyN(io.Discard, c.Request.Body, drained)
}

// bodies bounds what a request may send, and refuses what the route does not read.
func (s *Server) bodies(c *gin.Context) {
	body := s.routeOf(c).Body
	limit := body.Limit
	if sent := c.GetHeader("Content-Type"); c.Request.ContentLength != 0 && !body.readable(sent) {
		Refuse(c, wire.Reply{
			Status: http.StatusUnsupportedMediaType, Code: "UNSUPPORTED_MEDIA_TYPE",
			Message: "the body is " + clean(sent) + ": send JSON, as Content-Type: application/json",
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
		c.Request.Body = &patient{ReadCloser: c.Request.Body, rc: http.NewResponseController(c.Writer)}
	}
}

// queue lets only so many large bodies come at the same time: who sends slowly keeps a
// connection, and a place where the body goes, for as long as it takes.
func (s *Server) queue(c *gin.Context) {
	if s.routeOf(c).Body.Limit < UploadLimit {
		return
	}
	leave, ok := s.uploads.enter(Actor(c).User)
	if !ok {
		Refuse(c, wire.Reply{
			Status: http.StatusTooManyRequests, Code: "TOO_MANY_UPLOADS", RetryAfter: wire.RetryAfter,
			Message: "too many uploads come at the same time: wait for one to end, or send them as an archive",
		})
		return
	}
	defer leave()
	c.Next()
}

const corsMethods = "GET, POST, PUT, PATCH, DELETE, OPTIONS"

// cors lets browsers of the allowed origins in, and answers their preflights. No
// credentials are allowed: tokens travel in a header a page has to set itself. Pages of the
// gateway's own origin need no permission; pages of other origins change nothing, since some
// routes, such as the login, act without a token.
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

// changes reports whether requests of a method may change something.
func changes(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// sameOrigin reports whether a page of the address that the browser used sends the request. A
// reverse proxy may replace the Host header, but no page can set Sec-Fetch-Site.
func sameOrigin(r *http.Request, origin string) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin" || site == "none"
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}
