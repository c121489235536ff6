package console

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/bell"
	"github.com/orreryhq/orrery/apigateway/internal/events"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/socket"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// Defaults of a Config.
const (
	DefaultMaxStreams   = 1024
	DefaultWriteTimeout = 10 * time.Second
)

// Config is what Streams need; what has no default is required.
type Config struct {
	View       *view.View
	Auth       *auth.Service
	Operations *operate.Operations
	Tickets    *events.Tickets
	// Bell must be subscribed to the view.
	Bell *bell.Bell
	// Origins are those whose pages may open a WebSocket now; "*" allows any.
	Origins func() []string
	// MaxStreams is the number of consoles shown at a time. 0 means DefaultMaxStreams.
	MaxStreams int
	// OfUser is how many of them one user has, half of all at most. 0 means places.DefaultOfUser.
	OfUser int
	// WriteTimeout is how long one write may be stuck. 0 means DefaultWriteTimeout.
	WriteTimeout time.Duration
	Log          *slog.Logger
	Metrics      *telemetry.Metrics
}

// Streams serves consoles.
type Streams struct {
	cfg     Config
	room    *socket.Room
	metrics metrics
}

type metrics struct {
	bytes, suppressed *prometheus.CounterVec
}

// New wires the streams. Close them.
func New(cfg Config) *Streams {
	cfg.MaxStreams = cmp.Or(cfg.MaxStreams, DefaultMaxStreams)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, DefaultWriteTimeout)
	s := &Streams{cfg: cfg, room: socket.NewRoom(cfg.MaxStreams, cfg.OfUser, "consoles", cfg.Origins)}
	s.metrics = metrics{
		bytes:      cfg.Metrics.Counter("console_bytes", "Bytes of output shown to clients."),
		suppressed: cfg.Metrics.Counter("console_lines_suppressed", "Lines of output clients could not follow."),
	}
	cfg.Metrics.GaugeFunc("console", "streams", "Consoles shown now.", func() float64 { return float64(s.room.Open()) })
	return s
}

// Routes are the streams of consoles in both dialects.
func (s *Streams) Routes() []server.Route {
	console := func(base string) []server.Route {
		return server.Under(base,
			server.Post("/:id/console/ticket", server.Needs(auth.InstancesConsole), s.Ticket).IssuesTickets(),
			server.Get("/:id/console", server.Ticketed, s.Stream),
			server.Get("/:id/attach", server.Ticketed, s.Attach),
		)
	}
	return slices.Concat(console("/api/v1/services"), console("/api/v1/instances"), []server.Route{
		server.Get("/api/instances/:id/live-log", server.Ticketed, s.LiveLog),
	})
}

// Close ends all streams, refuses new ones and waits: clients come back to another
// replica with their last id.
func (s *Streams) Close() { s.room.Close() }

func (s *Streams) count(f client.Frame) {
	s.metrics.bytes.WithLabelValues().Add(float64(len(f.Data)))
	if f.Skipped != nil {
		s.metrics.suppressed.WithLabelValues().Add(float64(f.Skipped.Lines))
	}
}

// watch follows whether a viewer may look still.
func (s *Streams) watch(who viewer) socket.Watch {
	return func(ctx context.Context) (context.Context, func(), error) {
		return s.cfg.Auth.While(ctx, who.credential, auth.InstancesConsole)
	}
}

// viewer is who looks at a console.
type viewer struct {
	by         operate.Actor
	credential fleet.Credential
	// typing is true when it could also type when it was let in.
	typing bool
}

// types reports whether somebody may type now.
func (s *Streams) types(v viewer) bool {
	who, err := s.cfg.Auth.Judge(v.credential)
	return v.typing && err == nil && who.Can(auth.InstancesCommand)
}

// streamOf is what a ticket for an instance's console is bound to.
func streamOf(id fleet.InstanceID) string { return "console:" + string(id) }

// viewer is who makes the request: by its ticket or the usual credentials.
func (s *Streams) viewer(c *gin.Context, i *fleet.Instance) (viewer, error) {
	ticket, ok := server.Ticket(c)
	if !ok {
		who, ok := server.Identity(c)
		switch {
		case !ok:
			return viewer{}, errs.New(errs.Unauthenticated, "send a ticket, or a token")
		case !who.Can(auth.InstancesConsole):
			return viewer{}, errs.New(errs.Denied, "%s", who.Lacks(auth.InstancesConsole))
		}
		return viewer{server.Actor(c), who.Credential(), who.Can(auth.InstancesCommand)}, nil
	}
	var record fleet.Ticket
	err := operate.InTime(c.Request.Context(), func(ctx context.Context) (err error) {
		record, err = s.cfg.Tickets.Use(ctx, ticket, func(t fleet.Ticket) bool {
			return t.Stream == streamOf(i.Intent.ID) || t.Stream == events.StreamName && t.Consoles
		})
		return err
	})
	return viewer{operate.Actor{User: record.User, IP: c.ClientIP()}, record.Credential, record.Typing}, err
}

// find is the instance a path names. A caller who is not known learns nothing of what there is.
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
		s.cfg.Operations.NoteRead(v.by, fleet.ActionConsoleRead, "instance", string(i.Intent.ID), "")
	}
	return i, v, err
}

// Ticket answers with a ticket for an instance's console, bound to the caller and to it.
func (s *Streams) Ticket(c *gin.Context) {
	i, err := s.cfg.Operations.Find(c.Param("id"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	var ticket string
	who, _ := server.Identity(c)
	err = operate.InTime(c.Request.Context(), func(ctx context.Context) (err error) {
		ticket, err = s.cfg.Tickets.Issue(ctx, fleet.Ticket{
			Credential: who.Credential(), Stream: streamOf(i.Intent.ID), Typing: who.Can(auth.InstancesCommand),
		})
		return err
	})
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusOK, gin.H{"ticket": ticket, "expiresInSeconds": int(s.cfg.Tickets.TTL() / time.Second)})
}
