// Package logs serves the logs of gateways and node agents: the last records of each, as a list and
// as a stream of server-sent events.
//
// Invariants:
//
//   - Each process keeps a limited number of its own records in memory; see telemetry.Ring.
//     They are not written to etcd.
//   - The system list merges the records of all gateways and names those that did not answer, with
//     the reason. The system stream covers one gateway, which its first event names.
//   - The gateway that gets a list request checks the permission. It asks the other gateways with
//     the cluster secret and does not forward the caller's token.
//   - IDs of a stream are record numbers, and Last-Event-ID resumes after one. Records that are no
//     longer stored are reported as a gap, and so is an ID that is ahead of the clock. A client
//     that does not read is disconnected.
//   - A stream ends when the credential that opened it expires or loses the permission.
package logs

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/server/peer"
	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
	"github.com/orreryhq/orrery/apigateway/internal/stream/socket"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
)

// Defaults of Config.
const (
	DefaultMaxStreams   = 256
	DefaultWriteTimeout = 10 * time.Second
)

const (
	// defaultRecords and maxRecords limit the records of a response.
	defaultRecords, maxRecords = 200, 1000
	// keepAlive is the longest pause on a stream.
	keepAlive = 15 * time.Second
)

// Config has what Logs needs. Fields without a default are required.
type Config struct {
	// Records are this gateway's own records.
	Records *telemetry.Ring
	// Service and Replica identify this gateway's session.
	Service, Replica string
	View             *view.View
	Auth             *auth.Service
	Tickets          *events.Tickets
	Agents           *upstream.Agents
	// Client calls the other gateways.
	Client *peer.Client
	Log    *slog.Logger
	// MaxStreams limits the concurrent streams. 0 means DefaultMaxStreams.
	MaxStreams int
	// PerUser limits the streams of one user, to at most half of all. 0 means streamlimit.DefaultPerUser.
	PerUser int
	// WriteTimeout limits one write. 0 means DefaultWriteTimeout.
	WriteTimeout time.Duration
	Metrics      *telemetry.Metrics
}

// Logs serves logs.
type Logs struct {
	cfg  Config
	pool *socket.Pool
}

// New returns Logs. Close them at the end.
func New(cfg Config) *Logs {
	cfg.MaxStreams = cmp.Or(cfg.MaxStreams, DefaultMaxStreams)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, DefaultWriteTimeout)
	l := &Logs{cfg: cfg, pool: socket.NewPool(cfg.MaxStreams, cfg.PerUser, "logs", nil)}
	cfg.Metrics.GaugeFunc("log", "streams", "Logs shown now.", func() float64 { return float64(l.pool.Len()) })
	return l
}

// Close ends all streams, refuses new ones and waits. Clients reconnect to another replica.
func (l *Logs) Close() { l.pool.Close() }

// Own returns this gateway's records.
func (l *Logs) Own() *telemetry.Ring { return l.cfg.Records }

// Routes returns all log routes.
func (l *Logs) Routes() []server.Route {
	see := server.Needs(auth.SystemLogsView)
	return []server.Route{
		server.Get("/api/v1/system/logs", see, l.listSystem),
		server.Post("/api/v1/system/logs/ticket", see, func(c *gin.Context) { l.issue(c, system) }).IssuesTickets(),
		server.Get("/api/v1/system/logs/stream", server.Ticketed, l.streamSystem),
		server.Get("/api/v1/nodes/:id/logs", see, l.listNode),
		server.Post("/api/v1/nodes/:id/logs/ticket", see, l.nodeTicket).IssuesTickets(),
		server.Get("/api/v1/nodes/:id/logs/stream", server.Ticketed, l.streamNode),
	}
}

// Query selects the last Limit records that match the filter.
type Query struct {
	telemetry.RecordFilter
	Limit int
}

// QueryOf parses ?level, ?logger and the limit, whose parameter is called number. If ok is false,
// the error response was sent.
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

// Page has the last records of a log, oldest first.
type Page struct {
	Records []telemetry.Record `json:"records"`
	// Size is the number of stored records, Capacity the maximum.
	Size     int `json:"size"`
	Capacity int `json:"capacity"`
	// Level and Logger are the filter of the request.
	Level  string `json:"level"`
	Logger string `json:"logger"`
}

// page returns the selected records of a ring.
func page(ring *telemetry.Ring, q Query) Page {
	return Page{
		Records: ring.Last(q.RecordFilter, q.Limit), Size: ring.Size(), Capacity: ring.Capacity(), Level: q.Level, Logger: q.Logger,
	}
}
