package events

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/stream/streamlimit"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/wire"
)

// StreamName is the stream that event tickets are bound to.
const StreamName = "events"

// Defaults of a Config.
const (
	DefaultMaxClients   = 2000
	DefaultBacklog      = 2048
	DefaultKeepAlive    = 15 * time.Second
	DefaultWriteTimeout = 10 * time.Second
)

// Config has what Streams needs.
type Config struct {
	Store *store.Client
	// Log must be subscribed to a view that runs.
	Log     *Log
	Tickets *Tickets
	// ClusterID is sent to clients, which may return it as ?clusterId= so that IDs of another cluster are
	// recognized.
	ClusterID string
	// Caller authenticates a request without a ticket. It returns an error if the caller may not see
	// events.
	Caller func(*gin.Context) (account.Credential, error)
	// While returns what the credential may see on one stream, and a context that ends when that is no
	// longer so, with the error as its cause. leave is called when the stream ends. A nil While shows
	// everything and never ends a stream.
	While func(ctx context.Context, c account.Credential) (_ Scope, _ context.Context, leave func(), err error)
	// Consoles reports whether the caller may see consoles: older clients open them with an event
	// ticket. Nil means that no caller may.
	Consoles func(*gin.Context) bool
	// MaxClients limits the concurrent streams. 0 means DefaultMaxClients.
	MaxClients int
	// PerUser limits the streams of one user, to at most half of all. 0 means streamlimit.DefaultPerUser.
	PerUser int
	// Backlog is how many events a client that was up to date may fall behind before it is
	// disconnected. 0 means DefaultBacklog. More than the log's size has no effect.
	Backlog int
	// KeepAlive is the pause between comments on a silent stream. 0 means DefaultKeepAlive.
	KeepAlive time.Duration
	// WriteTimeout limits one write. 0 means DefaultWriteTimeout.
	WriteTimeout time.Duration
	Slog         *slog.Logger       // nil discards
	Metrics      *telemetry.Metrics // nil counts nothing
}

// Streams serves the event stream and its tickets.
type Streams struct {
	cfg     Config
	archive *archive
	limiter *streamlimit.Limiter
	metrics metrics
	// buffers has reusable write buffers.
	buffers sync.Pool

	ending context.Context
	end    context.CancelFunc
}

type metrics struct {
	sent, lost, cut, resyncs prometheus.Counter
}

// New returns Streams.
func New(cfg Config) *Streams {
	cfg.MaxClients = cmp.Or(cfg.MaxClients, DefaultMaxClients)
	cfg.Backlog = cmp.Or(cfg.Backlog, DefaultBacklog)
	cfg.KeepAlive = cmp.Or(cfg.KeepAlive, DefaultKeepAlive)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, DefaultWriteTimeout)
	if cfg.Slog == nil {
		cfg.Slog = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = telemetry.NewMetrics(prometheus.NewRegistry(), "apigateway")
	}
	s := &Streams{cfg: cfg, limiter: streamlimit.New(cfg.MaxClients, cfg.PerUser), archive: newArchive(cfg.Store, cfg.Log, cfg.Slog)}
	s.ending, s.end = context.WithCancel(context.Background())
	s.buffers.New = func() any { return new(bytes.Buffer) }
	s.metrics = metrics{
		sent:    cfg.Metrics.Counter("events_sent", "Events written to clients of the event stream.").WithLabelValues(),
		lost:    cfg.Metrics.Counter("live_events_lost", "Live events that were dropped before a client of the event stream had received the events before them, counted per client.").WithLabelValues(),
		cut:     cfg.Metrics.Counter("event_streams_cut", "Event streams ended because the client did not keep up.").WithLabelValues(),
		resyncs: cfg.Metrics.Counter("event_resyncs", "Clients whose position could not be resumed.").WithLabelValues(),
	}
	cfg.Metrics.GaugeFunc("event", "streams", "Event streams open now.", func() float64 { return float64(s.limiter.InUse()) })
	return s
}

// Close ends all streams and refuses new ones. Clients resume on another replica with their last ID.
func (s *Streams) Close() { s.end() }

// Ticket issues a ticket for the event stream, bound to the caller.
func (s *Streams) Ticket(c *gin.Context) {
	caller, err := s.cfg.Caller(c)
	if err != nil {
		server.Fail(c, err)
		return
	}
	s.cfg.Tickets.Send(c, account.Ticket{Credential: caller, Stream: StreamName, Consoles: s.cfg.Consoles != nil && s.cfg.Consoles(c)})
}

// HasCapacity reports whether the caller may open another stream now. If not, it sends the error response.
// It is checked before issuing a ticket that could not be used.
func (s *Streams) HasCapacity(c *gin.Context, caller account.Credential) bool {
	h := streamlimit.HolderOf(caller)
	if s.limiter.Available(h) {
		return true
	}
	server.Refuse(c, full(h))
	return false
}

// Stream sends the events after the client's position, then new ones. It accepts a ?ticket= or a
// token.
func (s *Streams) Stream(c *gin.Context) {
	caller, err := s.caller(c)
	if err != nil {
		server.Fail(c, err)
		return
	}
	holder := streamlimit.HolderOf(caller)
	release, ok := s.limiter.Acquire(holder)
	if !ok {
		server.Refuse(c, full(holder))
		return
	}
	defer release()
	stream := newClient(s, c)
	start, err := s.start(c)
	if err != nil {
		server.Fail(c, err)
		return
	}
	ctx := c.Request.Context()
	if s.cfg.While != nil {
		var leave func()
		if stream.filter.scope, ctx, leave, err = s.cfg.While(ctx, caller); err != nil {
			server.Fail(c, err)
			return
		}
		defer leave()
	}
	stream.serve(ctx, start)
}

// caller authenticates the request by its ticket or token.
func (s *Streams) caller(c *gin.Context) (account.Credential, error) {
	text, ok := c.GetQuery("ticket")
	if !ok {
		return s.cfg.Caller(c)
	}
	ticket, err := s.cfg.Tickets.Redeem(c.Request.Context(), text, StreamName)
	return ticket.Credential, err
}

// fullFor and fullForInstances are the retry delays at the stream limit. Instances wait longer, because
// there are many and each attempt creates a ticket.
const fullFor, fullForInstances = 5 * time.Second, time.Minute

// full is the error response at the stream limit.
func full(h streamlimit.Holder) wire.Reply {
	r := wire.Reply{
		Status: http.StatusTooManyRequests, Code: "TOO_MANY_STREAMS", RetryAfter: fullFor,
		Message: "too many event streams are open, in total or for you: close some, or retry later with a new ticket",
	}
	if h.Instance != "" {
		r.RetryAfter = fullForInstances
	}
	return r
}

// origin is the start of a client's stream.
type origin struct {
	pos Position
	// lost is true if the client's position cannot be resumed.
	lost bool
}

// start parses the client's position. The Last-Event-ID header wins over the query, which a browser
// repeats unchanged when it reconnects.
func (s *Streams) start(c *gin.Context) (origin, error) {
	if s.ending.Err() != nil {
		return origin{}, errs.New(errs.Unavailable, "this replica is shutting down: connect again")
	}
	if err := checkTypes(c.Query("types")); err != nil {
		return origin{}, err
	}
	if err := checkNumbering(c); err != nil {
		return origin{}, err
	}
	head := s.cfg.Log.Head()
	if head == 0 {
		return origin{}, errs.New(errs.Unavailable, "the gateway is still reading the fleet's state: retry")
	}
	id := cmp.Or(c.GetHeader("Last-Event-ID"), c.Query("lastSequence"))
	if id == "" {
		return origin{pos: Position{Rev: head}}, nil
	}
	pos, ok := ParsePosition(id)
	if cluster := c.Query("clusterId"); !ok || cluster != "" && cluster != s.cfg.ClusterID {
		return origin{pos: pos, lost: true}, nil
	}
	if pos.Rev <= head {
		return origin{pos: pos}, nil
	}
	// Another replica that is ahead of this one may have sent the event.
	var latest int64
	err := txn.InTime(c.Request.Context(), func(ctx context.Context) (err error) {
		latest, err = s.cfg.Store.Revision(ctx)
		return err
	})
	if err != nil {
		return origin{}, errs.Wrap("events.start", err)
	}
	return origin{pos: pos, lost: pos.Rev > latest}, nil
}
