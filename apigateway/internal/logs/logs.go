// Package logs shows what gateways and the agents of nodes log themselves: the last records
// of each, as a list and as a stream of server-sent events.
//
// Invariants:
//
//   - Each process keeps its own records, in memory and so many; see telemetry.Ring. Nothing
//     of them is written to etcd.
//   - The list of the system is merged over all gateways there are, and names those that did
//     not answer, and why. Its stream is of one gateway, which its first event names.
//   - Whether somebody may see the list is asked by the gateway that was asked for it. It asks
//     the others as a gateway, with the cluster secret, and hands nobody's token on.
//   - Ids of a stream are the records' numbers, and Last-Event-ID goes on after them. What is
//     not kept any more is told as a gap, never left out in silence, and so is a number that
//     the clock has not reached. A client that takes nothing is cut.
//   - A stream ends when the credential that opened it does, or may not see logs any more.
package logs

import (
	"cmp"
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/events"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/socket"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
)

// Defaults of a Config.
const (
	DefaultMaxStreams   = 256
	DefaultWriteTimeout = 10 * time.Second
)

const (
	// defaultRecords and maxRecords are how many are answered.
	defaultRecords, maxRecords = 200, 1000
	// keepAlive is the longest pause on a stream.
	keepAlive = 15 * time.Second
)

// Config is what Logs need; what has no default is required.
type Config struct {
	// Records are this gateway's own.
	Records *telemetry.Ring
	// Service and Replica are what this gateway's session is filed under.
	Service, Replica string
	View             *view.View
	Auth             *auth.Service
	Tickets          *events.Tickets
	Agents           *upstream.Agents
	// Client reaches the other gateways, Secret is the cluster's.
	Client *http.Client
	Secret string
	Log    *slog.Logger
	// MaxStreams is the number of streams at a time. 0 means DefaultMaxStreams.
	MaxStreams int
	// OfUser is how many of them one user has, half of all at most. 0 means places.DefaultOfUser.
	OfUser int
	// WriteTimeout is how long one write may be stuck. 0 means DefaultWriteTimeout.
	WriteTimeout time.Duration
	Metrics      *telemetry.Metrics
}

// Logs serves logs.
type Logs struct {
	cfg  Config
	room *socket.Room
}

// New wires the logs. Close them.
func New(cfg Config) *Logs {
	cfg.MaxStreams = cmp.Or(cfg.MaxStreams, DefaultMaxStreams)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, DefaultWriteTimeout)
	l := &Logs{cfg: cfg, room: socket.NewRoom(cfg.MaxStreams, cfg.OfUser, "logs", nil)}
	cfg.Metrics.GaugeFunc("log", "streams", "Logs shown now.", func() float64 { return float64(l.room.Open()) })
	return l
}

// Close ends all streams, refuses new ones and waits: clients come back to another replica.
func (l *Logs) Close() { l.room.Close() }

// Own are this gateway's records.
func (l *Logs) Own() *telemetry.Ring { return l.cfg.Records }

// Routes are all routes of logs.
func (l *Logs) Routes() []server.Route {
	see := server.Needs(auth.SystemLogsView)
	return []server.Route{
		server.Get("/api/v1/system/logs", see, l.listSystem),
		server.Post("/api/v1/system/logs/ticket", see, l.ticket(system)).IssuesTickets(),
		server.Get("/api/v1/system/logs/stream", server.Ticketed, l.streamSystem),
		server.Get("/api/v1/nodes/:id/logs", see, l.listNode),
		server.Post("/api/v1/nodes/:id/logs/ticket", see, l.nodeTicket).IssuesTickets(),
		server.Get("/api/v1/nodes/:id/logs/stream", server.Ticketed, l.streamNode),
	}
}

// Query says which records are wanted: the last Limit that the filter takes.
type Query struct {
	telemetry.RecordFilter
	Limit int
}

// QueryOf reads ?level, ?logger and the number, by its name in the query. ok is false when
// the request was answered.
func QueryOf(c *gin.Context, number string) (q Query, ok bool) {
	var err error
	if q.RecordFilter, err = telemetry.ParseRecordFilter(c.Query("level"), c.Query("logger")); err != nil {
		server.Fail(c, err)
		return q, false
	}
	if q.Limit, ok = server.Number(c, number, defaultRecords); !ok {
		return q, false
	}
	if q.Limit < 0 {
		server.Fail(c, &errs.Error{Kind: errs.Malformed, Field: number, Message: number + " must not be negative"})
		return q, false
	}
	q.Limit = min(q.Limit, maxRecords)
	return q, true
}

// Page are the last records of a log, the oldest first.
type Page struct {
	Records []telemetry.Record `json:"records"`
	// Size is how many records are kept, Capacity how many could be.
	Size     int `json:"size"`
	Capacity int `json:"capacity"`
	// Level and Logger are the filter's.
	Level  string `json:"level"`
	Logger string `json:"logger"`
}

// page is what a ring has of what is wanted.
func page(ring *telemetry.Ring, q Query) Page {
	return Page{
		Records: ring.Last(q.RecordFilter, q.Limit), Size: ring.Size(), Capacity: ring.Capacity(), Level: q.Level, Logger: q.Logger,
	}
}
