package console

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/instanceops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
	"github.com/orreryhq/orrery/apigateway/internal/stream/notify"
	"github.com/orreryhq/orrery/apigateway/internal/stream/socket"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// Defaults of Config.
const (
	DefaultMaxStreams   = 1024
	DefaultWriteTimeout = 10 * time.Second
)

// Config has what Streams needs. Fields without a default are required.
type Config struct {
	View       *view.View
	Auth       *auth.Service
	Operations *ops.Operations
	Tickets    *events.Tickets
	// Changes must be subscribed to the view.
	Changes *notify.Changes
	// Origins returns the origins whose pages may open a WebSocket; "*" allows any.
	Origins func() []string
	// MaxStreams limits the concurrent consoles. 0 means DefaultMaxStreams.
	MaxStreams int
	// PerUser limits the streams of one user, to at most half of all. 0 means streamlimit.DefaultPerUser.
	PerUser int
	// WriteTimeout limits one write. 0 means DefaultWriteTimeout.
	WriteTimeout time.Duration
	Log          *slog.Logger
	Metrics      *telemetry.Metrics
}

// Streams serves consoles.
type Streams struct {
	cfg     Config
	pool    *socket.Pool
	metrics metrics
}

type metrics struct {
	bytes, suppressed *prometheus.CounterVec
}

// New returns Streams. Close them at the end.
func New(cfg Config) *Streams {
	cfg.MaxStreams = cmp.Or(cfg.MaxStreams, DefaultMaxStreams)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, DefaultWriteTimeout)
	s := &Streams{cfg: cfg, pool: socket.NewPool(cfg.MaxStreams, cfg.PerUser, "consoles", cfg.Origins)}
	s.metrics = metrics{
		bytes:      cfg.Metrics.Counter("console_bytes", "Bytes of output shown to clients."),
		suppressed: cfg.Metrics.Counter("console_lines_suppressed", "Lines of output clients could not follow."),
	}
	cfg.Metrics.GaugeFunc("console", "streams", "Consoles shown now.", func() float64 { return float64(s.pool.Len()) })
	return s
}

// Routes returns the console routes of both dialects.
func (s *Streams) Routes() []server.Route {
	console := func(base string) []server.Route {
		return server.Under(base,
			server.Post("/:id/console/ticket", server.Needs(auth.InstancesConsole), s.Ticket).IssuesTickets().In(server.InstanceInPath),
			server.Get("/:id/console", server.Ticketed, s.Stream),
			server.Get("/:id/attach", server.Ticketed, s.Attach),
		)
	}
	return slices.Concat(console("/api/v1/services"), console("/api/v1/instances"), []server.Route{
		server.Get("/api/instances/:id/live-log", server.Ticketed, s.LiveLog),
	})
}

// Close ends all streams, refuses new ones and waits. Clients resume on another replica with their
// last ID.
func (s *Streams) Close() { s.pool.Close() }

func (s *Streams) count(f client.Frame) {
	s.metrics.bytes.WithLabelValues().Add(float64(len(f.Data)))
	if f.Skipped != nil {
		s.metrics.suppressed.WithLabelValues().Add(float64(f.Skipped.Lines))
	}
}

// watch ends its context when the viewer loses the permission to read consoles.
func (s *Streams) watch(who viewer) socket.Watch {
	return func(ctx context.Context) (context.Context, func(), error) {
		return s.cfg.Auth.WhileIn(ctx, who.credential, who.group, auth.InstancesConsole)
	}
}

// watchAnywhere is watch for an instance that does not exist.
func (s *Streams) watchAnywhere(who viewer) socket.Watch {
	return func(ctx context.Context) (context.Context, func(), error) {
		_, ctx, leave, err := s.cfg.Auth.WhileSomewhere(ctx, who.credential, auth.InstancesConsole)
		return ctx, leave, err
	}
}

// viewer is the client that reads a console.
type viewer struct {
	by         txn.Actor
	credential account.Credential
	// group is that of the instance.
	group fleet.GroupName
	// typing is true if the client could also type when the stream was opened.
	typing bool
}

// types reports whether a viewer may type now.
func (s *Streams) types(v viewer) bool {
	return v.typing && s.cfg.Auth.MayIn(v.credential, v.group, auth.InstancesCommand) == nil
}

// streamOf returns the stream name that a ticket for an instance's console is bound to.
func streamOf(id fleet.InstanceID) string { return "console:" + string(id) }

// viewer authenticates the request by its ticket or token.
func (s *Streams) viewer(c *gin.Context, i *fleet.Instance) (viewer, error) {
	ticket, ok := server.Ticket(c)
	if !ok {
		who, ok := server.Identity(c)
		if !ok {
			return viewer{}, errs.New(errs.Unauthenticated, "send a ticket, or a token")
		}
		v := viewer{server.Actor(c), who.Credential(), i.Intent.Group, server.AllowedIn(c, i.Intent.Group, auth.InstancesCommand)}
		switch {
		case server.AllowedIn(c, i.Intent.Group, auth.InstancesConsole):
			return v, nil
		case who.Scoped() && !server.AllowedIn(c, i.Intent.Group, auth.InstancesView):
			return v, instanceops.NoInstance(c.Param("id"))
		}
		return v, errs.New(errs.Denied, "%s", who.Lacks(auth.InstancesConsole))
	}
	record, err := s.cfg.Tickets.Use(c.Request.Context(), ticket, func(t account.Ticket) bool {
		return t.Stream == streamOf(i.Intent.ID) ||
			t.Stream == events.StreamName && t.Consoles && s.cfg.Auth.MayIn(t.Credential, i.Intent.Group, auth.InstancesConsole) == nil
	})
	return viewer{txn.Actor{User: record.User, IP: c.ClientIP()}, record.Credential, i.Intent.Group, record.Typing}, err
}

// find returns the instance in the path. Unauthenticated callers cannot find out which exist.
func (s *Streams) find(c *gin.Context) (*fleet.Instance, viewer, error) {
	i, err := s.cfg.Operations.Find(c.Param("id"))
	if _, ticketed := server.Ticket(c); err != nil && ticketed {
		return nil, viewer{}, errs.New(errs.Unauthenticated, "the ticket is used, expired or not for this stream: ask for a new one")
	}
	if err != nil {
		who, known := server.Identity(c)
		if !known {
			return nil, viewer{}, errs.New(errs.Unauthenticated, "send a ticket, or a token")
		}
		return nil, viewer{by: server.Actor(c), credential: who.Credential()}, err
	}
	v, err := s.viewer(c, i)
	if err == nil {
		s.cfg.Operations.NoteRead(v.by, account.ActionConsoleRead, "instance", string(i.Intent.ID), "")
	}
	return i, v, err
}

// Ticket issues a ticket for an instance's console, bound to the caller and the instance.
func (s *Streams) Ticket(c *gin.Context) {
	i, err := s.cfg.Operations.Find(c.Param("id"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	who, _ := server.Identity(c)
	s.cfg.Tickets.Send(c, account.Ticket{Credential: who.Credential(), Stream: streamOf(i.Intent.ID), Typing: who.Can(auth.InstancesCommand)})
}
