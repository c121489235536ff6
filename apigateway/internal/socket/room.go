package socket

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/places"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
)

// Room is where streams are. Make it with NewRoom and Close it.
type Room struct {
	places  *places.Places
	what    string
	origins func() []string

	// running are the open streams. Guarded by mu: whether there may be more.
	running sync.WaitGroup
	mu      sync.Mutex
	closed  bool
	ending  context.Context
	end     context.CancelFunc
}

// NewRoom has room for so many streams, ofUser of them of one user as in places.New; what names
// them in messages, in the plural. origins are those whose pages may open a WebSocket; "*" allows
// any, and pages of the gateway's own origin always may.
func NewRoom(most, ofUser int, what string, origins func() []string) *Room {
	r := &Room{places: places.New(most, ofUser), what: what, origins: origins}
	r.ending, r.end = context.WithCancel(context.Background())
	return r
}

// Open is how many streams there are now.
func (r *Room) Open() int { return r.places.Taken() }

// Ending reports whether streams end because the gateway does.
func (r *Room) Ending() bool { return r.ending.Err() != nil }

// Close ends all streams, refuses new ones and waits.
func (r *Room) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.end()
	r.running.Wait()
}

// Watch follows whether who opened a stream may have it still: the context it returns ends
// when not, with what to tell them as its cause, Denied or Unauthenticated. Call unwatch at the end.
type Watch func(ctx context.Context) (watched context.Context, unwatch func(), err error)

// Enter counts in a stream that who opens; leave is to be called at its end. The context ends
// with the request and with the room, and when who looks may not look any more; see Expelled.
// When ok is false the request was answered.
func (r *Room) Enter(c *gin.Context, who fleet.Credential, watch Watch) (ctx context.Context, leave func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		server.Fail(c, errs.New(errs.Unavailable, "this replica is shutting down: connect again"))
		return nil, nil, false
	}
	leavePlace, ok := r.places.Take(places.HolderOf(who))
	if !ok {
		server.Refuse(c, wire.Reply{
			Status: http.StatusTooManyRequests, Code: "TOO_MANY_STREAMS", RetryAfter: 5 * time.Second,
			Message: "too many " + r.what + " are open, in all or of yours: close some or retry later",
		})
		return nil, nil, false
	}
	ctx, unwatch, err := watch(c.Request.Context())
	if err != nil {
		leavePlace()
		server.Fail(c, err)
		return nil, nil, false
	}
	r.running.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(r.ending, cancel)
	return ctx, func() { stop(); cancel(); unwatch(); leavePlace(); r.running.Done() }, true
}

// Expelled is why who looked may not look any more; "" when a stream ended for another reason.
func Expelled(ctx context.Context) string {
	if why := context.Cause(ctx); errs.Is(why, errs.Denied) || errs.Is(why, errs.Unauthenticated) {
		return "cut off: " + errs.MessageOf(why)
	}
	return ""
}
