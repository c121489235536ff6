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

	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/places"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/wire"
)

// StreamName is what a ticket for the event stream is bound to.
const StreamName = "events"

// Defaults of a Config.
const (
	DefaultMaxClients   = 2000
	DefaultBacklog      = 2048
	DefaultKeepAlive    = 15 * time.Second
	DefaultWriteTimeout = 10 * time.Second
)

// Config is what Streams need.
type Config struct {
	Store *store.Client
	// Log must be subscribed to a view that runs.
	Log     *Log
	Tickets *Tickets
	// ClusterID is told to clients, which may send it back as ?clusterId= so that
	// ids of another cluster are recognised.
	ClusterID string
	// Caller is what the request's own credentials are; an error when they are nobody's who
	// may see events.
	Caller func(*gin.Context) (fleet.Credential, error)
	// While is a context that ends, with the error as its cause, when a credential's holder
	// may not see events any more; leave is called at the end of the stream. Nil cuts no stream.
	While func(ctx context.Context, c fleet.Credential) (_ context.Context, leave func(), err error)
	// Sight is what a credential's holder may see, for one stream. Nil lets everybody see
	// everything.
	Sight func(fleet.Credential) Sight
	// Consoles reports whether who makes a request may see consoles: older clients open
	// them with a ticket for events. Nil means that nobody may.
	Consoles func(*gin.Context) bool
	// MaxClients is the number of streams at a time. 0 means DefaultMaxClients.
	MaxClients int
	// OfUser is how many of them one user has, half of all at most. 0 means places.DefaultOfUser.
	OfUser int
	// Backlog is how many events a client that was up to date may fall behind
	// before it is cut. 0 means DefaultBacklog; more than the log's size is of no use.
	Backlog int
	// KeepAlive is the pause between comments on a silent stream. 0 means DefaultKeepAlive.
	KeepAlive time.Duration
	// WriteTimeout is how long one write may be stuck. 0 means DefaultWriteTimeout.
	WriteTimeout time.Duration
	Slog         *slog.Logger       // nil discards
	Metrics      *telemetry.Metrics // nil counts nothing
}

// Streams serves the event stream and its tickets.
type Streams struct {
	cfg     Config
	archive *archive
	places  *places.Places
	metrics metrics
	// buffers are for what clients are about to be written.
	buffers sync.Pool

	closeOnce sync.Once
	closed    chan struct{}
}

type metrics struct {
	sent, lost, cut, resyncs prometheus.Counter
}

// New wires the streams.
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
	s := &Streams{cfg: cfg, places: places.New(cfg.MaxClients, cfg.OfUser), archive: newArchive(cfg.Store, cfg.Log, cfg.Slog), closed: make(chan struct{})}
	s.buffers.New = func() any { return new(bytes.Buffer) }
	s.metrics = metrics{
		sent:    cfg.Metrics.Counter("events_sent", "Events written to clients of the event stream.").WithLabelValues(),
		lost:    cfg.Metrics.Counter("live_events_lost", "Live events that were not kept until a client of the event stream was told of what came before them, for each such client.").WithLabelValues(),
		cut:     cfg.Metrics.Counter("event_streams_cut", "Event streams ended because the client did not keep up.").WithLabelValues(),
		resyncs: cfg.Metrics.Counter("event_resyncs", "Clients whose position could not be resumed.").WithLabelValues(),
	}
	cfg.Metrics.GaugeFunc("event", "streams", "Event streams open now.", func() float64 { return float64(s.places.Taken()) })
	return s
}

// Close ends all streams and refuses new ones: clients come back to another
// replica with their last id.
func (s *Streams) Close() { s.closeOnce.Do(func() { close(s.closed) }) }

// ended reports whether the streams are closed.
func (s *Streams) ended() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// Ticket answers with a new ticket for the event stream, bound to the caller.
func (s *Streams) Ticket(c *gin.Context) {
	caller, err := s.cfg.Caller(c)
	if err != nil {
		fail(c, err)
		return
	}
	var ticket string
	err = operate.InTime(c.Request.Context(), func(ctx context.Context) error {
		ticket, err = s.cfg.Tickets.Issue(ctx, fleet.Ticket{Credential: caller, Stream: StreamName, Consoles: s.cfg.Consoles != nil && s.cfg.Consoles(c)})
		return err
	})
	if err != nil {
		fail(c, err)
		return
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusOK, gin.H{"ticket": ticket, "expiresInSeconds": int(s.cfg.Tickets.TTL() / time.Second)})
}

// HasRoom reports whether another stream of the caller's would find a place now; if not, the
// request is answered. It is asked before a ticket is written that nothing would come of.
func (s *Streams) HasRoom(c *gin.Context, caller fleet.Credential) bool {
	h := places.HolderOf(caller)
	if s.places.Has(h) {
		return true
	}
	c.Abort()
	wire.Write(c.Writer, wire.V1, full(h))
	return false
}

// Stream serves the events after the client's position, then those that come. It
// takes a ?ticket= or the usual credentials.
func (s *Streams) Stream(c *gin.Context) {
	caller, err := s.caller(c)
	if err != nil {
		fail(c, err)
		return
	}
	holder := places.HolderOf(caller)
	leavePlace, ok := s.places.Take(holder)
	if !ok {
		c.Abort()
		wire.Write(c.Writer, wire.V1, full(holder))
		return
	}
	defer leavePlace()
	stream := newClient(s, c)
	start, err := s.start(c)
	if err != nil {
		fail(c, err)
		return
	}
	ctx := c.Request.Context()
	if s.cfg.While != nil {
		var leave func()
		if ctx, leave, err = s.cfg.While(ctx, caller); err != nil {
			fail(c, err)
			return
		}
		defer leave()
	}
	if s.cfg.Sight != nil {
		stream.filter.sight = s.cfg.Sight(caller)
	}
	stream.serve(ctx, start)
}

// caller is whose stream it is.
func (s *Streams) caller(c *gin.Context) (fleet.Credential, error) {
	text, ok := c.GetQuery("ticket")
	if !ok {
		return s.cfg.Caller(c)
	}
	var ticket fleet.Ticket
	err := operate.InTime(c.Request.Context(), func(ctx context.Context) (err error) {
		ticket, err = s.cfg.Tickets.Redeem(ctx, text, StreamName)
		return err
	})
	return ticket.Credential, err
}

// fullFor and fullForInstances is when those who found no place are to come again: each
// try of an instance, of which there are many, has a ticket written.
const fullFor, fullForInstances = 5 * time.Second, time.Minute

// full is what a holder is told whom there is no place for.
func full(h places.Holder) wire.Reply {
	r := wire.Reply{
		Status: http.StatusTooManyRequests, Code: "TOO_MANY_STREAMS", RetryAfter: fullFor,
		Message: "too many event streams are open, in all or of yours: close some or retry later, with a new ticket",
	}
	if h.Instance != "" {
		r.RetryAfter = fullForInstances
	}
	return r
}

// origin is where a client's stream starts.
type origin struct {
	pos Position
	// lost is true when the position the client named cannot be resumed.
	lost bool
}

// start reads the position a client names. The Last-Event-ID header wins over the
// query, which a browser repeats unchanged when it reconnects.
func (s *Streams) start(c *gin.Context) (origin, error) {
	if s.ended() {
		return origin{}, errs.New(errs.Unavailable, "this replica is shutting down: connect again")
	}
	if err := nameable(c.Query("types")); err != nil {
		return origin{}, err
	}
	if err := numbering(c); err != nil {
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
	// The client may have heard of it from a replica that is ahead of this one.
	var latest int64
	err := operate.InTime(c.Request.Context(), func(ctx context.Context) (err error) {
		latest, err = s.cfg.Store.Revision(ctx)
		return err
	})
	if err != nil {
		return origin{}, errs.Wrap("events.start", err)
	}
	return origin{pos: pos, lost: pos.Rev > latest}, nil
}

// fail answers with the error envelope.
func fail(c *gin.Context, err error) {
	c.Abort()
	_ = c.Error(err) // for the access log
	wire.Encode(c.Writer, wire.V1, c.Writer.Header().Get("X-Request-Id"), err)
}
