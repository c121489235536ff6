package socket

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/stream/streamlimit"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/wire"
)

// Pool limits and ends a set of streams. Create it with NewPool and Close it.
type Pool struct {
	limiter *streamlimit.Limiter
	what    string
	origins func() []string

	// running counts the open streams. mu guards adding to it.
	running sync.WaitGroup
	mu      sync.Mutex
	ending  context.Context
	end     context.CancelFunc
}

// NewPool returns a Pool for at most limit streams, perUser of them per user as for streamlimit.New.
// what names the streams in messages, in the plural. origins returns the origins whose pages may open
// a WebSocket; "*" allows any. Pages of the gateway's own origin always may.
func NewPool(limit, perUser int, what string, origins func() []string) *Pool {
	p := &Pool{limiter: streamlimit.New(limit, perUser), what: what, origins: origins}
	p.ending, p.end = context.WithCancel(context.Background())
	return p
}

// Len returns the number of open streams.
func (p *Pool) Len() int { return p.limiter.InUse() }

// Closing reports whether Close was called.
func (p *Pool) Closing() bool { return p.ending.Err() != nil }

// Close ends all streams, refuses new ones and waits.
func (p *Pool) Close() {
	p.mu.Lock()
	p.end()
	p.mu.Unlock()
	p.running.Wait()
}

// Watch returns a context that ends when the client of a stream may no longer have it. The cause is
// the error for the client, Denied or Unauthenticated. Call unwatch when the stream ends.
type Watch func(ctx context.Context) (watched context.Context, unwatch func(), err error)

// Enter counts a new stream. Call leave when it ends. The context ends with the request, on Close, and
// when the client loses its permission; see RevokedReason. If ok is false, the error response
// was sent.
func (p *Pool) Enter(c *gin.Context, who account.Credential, watch Watch) (ctx context.Context, leave func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Closing() {
		server.Fail(c, errs.New(errs.Unavailable, "this replica is shutting down: connect again"))
		return nil, nil, false
	}
	release, ok := p.limiter.Acquire(streamlimit.HolderOf(who))
	if !ok {
		server.Refuse(c, wire.Reply{
			Status: http.StatusTooManyRequests, Code: "TOO_MANY_STREAMS", RetryAfter: 5 * time.Second,
			Message: "too many " + p.what + " are open, in total or for you: close some or retry later",
		})
		return nil, nil, false
	}
	ctx, unwatch, err := watch(c.Request.Context())
	if err != nil {
		release()
		server.Fail(c, err)
		return nil, nil, false
	}
	p.running.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(p.ending, cancel)
	return ctx, func() { stop(); cancel(); unwatch(); release(); p.running.Done() }, true
}

// RevokedReason says why a stream lost its permission; "" if it ended for another reason.
func RevokedReason(ctx context.Context) string {
	if why := context.Cause(ctx); errs.Is(why, errs.Denied) || errs.Is(why, errs.Unauthenticated) {
		return "cut off: " + errs.MessageOf(why)
	}
	return ""
}
