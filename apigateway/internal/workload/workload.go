// Package workload serves the calls of servers and proxies from inside an instance. The token identifies
// the calling instance.
//
// Calls that change something carry an increasing sequence number. The agent stores number and content
// together, so nothing counts twice on any gateway. Unknown body fields are ignored, because existing
// plugins send more than is used here.
package workload

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/server/ratelimit"
	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
	"github.com/orreryhq/orrery/apigateway/internal/workload/presence"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// headerSequence has a number that rises with each call of an instance.
const headerSequence = "X-Prexor-Sequence"

// saysReady is the state that a ready instance reports.
const saysReady = "ONLINE"

// Config has what the API needs. All fields are required.
type Config struct {
	Operations *ops.Operations
	Auth       *auth.Service
	// Players records accepted reports.
	Players *presence.Table
	// Tickets issues event stream tickets. HasCapacity reports whether another stream is allowed, and otherwise
	// sends the error response.
	Tickets     *events.Tickets
	HasCapacity func(*gin.Context, account.Credential) bool
	// Tell sends a live event to the clients of all gateways.
	Tell func(events.Event)
	Now  func() time.Time
}

// API serves the calls of instances.
type API struct {
	cfg       Config
	refreshes *limiter
	tickets   *limiter
	custom    *limiter // custom events
	metrics   *limiter // events with metrics
}

// New returns the API.
func New(cfg Config) *API {
	return &API{
		cfg:       cfg,
		refreshes: newLimiter(maxRefreshes, time.Minute, cfg.Now),
		tickets:   newLimiter(maxTickets, time.Minute, cfg.Now),
		custom:    newLimiter(maxEvents, time.Second, cfg.Now),
		metrics:   newLimiter(maxMeasures, time.Second, cfg.Now),
	}
}

// limiter limits how often each instance does something at this gateway.
type limiter = ratelimit.Limiter[fleet.InstanceID]

func newLimiter(limit int, window time.Duration, now func() time.Time) *limiter {
	return ratelimit.New[fleet.InstanceID](ratelimit.Config{Limit: func() int { return limit }, Window: window, Now: now})
}

// allow counts a request of the calling instance. Above the limit it answers 429 and returns false.
func allow(c *gin.Context, l *limiter, what string) bool {
	wait, ok := l.Allow(server.OwnInstance(c))
	if !ok {
		server.Refuse(c, wire.Reply{
			Status: http.StatusTooManyRequests, Code: "RATE_LIMITED", RetryAfter: max(wait, time.Second),
			Message: "too many " + what + " of this instance: wait a moment",
		})
	}
	return ok
}

// Routes returns all routes of servers and proxies.
func (a *API) Routes() []server.Route {
	return slices.Concat(a.routes("/api/plugin", false), a.routes("/api/proxy", true))
}

func (a *API) routes(base string, proxy bool) []server.Route {
	own := a.serverRoutes()
	if proxy {
		own = a.proxyRoutes()
	}
	return slices.Concat(a.commonRoutes(base, proxy), server.Under(base, own...))
}

// serverRoutes are for servers only, proxyRoutes for proxies.
func (a *API) serverRoutes() []server.Route {
	return []server.Route{
		server.Post("/metrics", server.Own, a.serverMetrics),
		server.Post("/transfer", server.Own, a.transfer),
		server.Post("/transfer-to-group", server.Own, a.transferToGroup),
		server.Post("/message/send", server.Own, a.sendMessage),
	}
}

func (a *API) proxyRoutes() []server.Route {
	return []server.Route{
		server.Post("/metrics", server.Own, a.proxyMetrics),
		server.Get("/networks", server.Own, a.asProxy(a.networks)),
		server.Get("/pending-transfers", server.Own, a.asProxy(a.pendingTransfers)),
		server.Post("/wake", server.Own, a.asProxy(a.wake)),
		server.Post("/transfer-ack/:uuid", server.Own, a.asProxy(a.ackTransfer)),
		server.Get("/messages/pending", server.Own, a.asProxy(a.pendingMessages)),
		server.Post("/messages/:id/ack", server.Own, a.asProxy(a.ackMessage)),
	}
}

// asProxy admits proxies only. Servers may not read all players and networks, nor read or acknowledge
// messages and transfers.
func (a *API) asProxy(serve gin.HandlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) {
		s := a.cfg.Operations.Snapshot()
		if !isProxy(s, server.OwnInstance(c)) {
			server.Fail(c, errs.New(errs.Denied, "only proxies may do this, and the platform of this instance's group is not a proxy: choose one, such as VELOCITY, or add the platform to the catalog with category PROXY"))
			return
		}
		serve(c)
	}
}

func (a *API) commonRoutes(base string, proxy bool) []server.Route {
	join := func(c *gin.Context) { a.playerJoin(c, proxy) }
	players, instances := a.playersOfServer, a.instances
	if proxy {
		join, players, instances = a.asProxy(join), a.asProxy(a.allPlayers), a.readyInstances
	}
	return server.Under(base,
		server.Post("/ready", server.Own, a.ready),
		server.Post("/heartbeat", server.Own, a.heartbeat),
		server.Post("/auth/refresh", server.OwnRenewing, a.refresh).ShowsOnce(),
		server.Post("/events", server.Own, a.event),
		server.Post("/events/ticket", server.Own, a.ticket),
		server.Post("/player-join", server.Own, join),
		server.Post("/player-leave", server.Own, a.playerLeave),
		server.Get("/instances", server.Own, instances),
		server.Get("/groups", server.Own, a.groups),
		server.Get("/players", server.Own, players),
	)
}

// bind decodes a body and ignores unknown fields. It returns false if the error response was sent.
func bind(c *gin.Context, into any) bool {
	if c.Request.ContentLength == 0 {
		return true
	}
	if _, err := wire.DecodeJSONLenient(c.Request.Body, 0, into); err != nil {
		server.Fail(c, err)
		return false
	}
	return true
}

// ready records that the instance is ready. With readiness heartbeat, it becomes RUNNING.
func (a *API) ready(c *gin.Context) { a.say(c, client.Heartbeat{State: saysReady}) }

// heartbeat records a heartbeat with the instance's players.
func (a *API) heartbeat(c *gin.Context) {
	var b struct {
		Players    *int     `json:"players"`
		MaxPlayers *int     `json:"maxPlayers"`
		TPS        *float64 `json:"tps"`
	}
	if bind(c, &b) {
		a.say(c, client.Heartbeat{Players: b.Players, MaxPlayers: b.MaxPlayers, TPS: b.TPS})
	}
}

// say forwards a report with its sequence number, and answers.
func (a *API) say(c *gin.Context, h client.Heartbeat) {
	if a.handOver(c, h) {
		c.JSON(http.StatusOK, gin.H{"status": "ok"})
	}
}

// handOver forwards a report to the instance's agent. It returns false if the error response was sent.
func (a *API) handOver(c *gin.Context, h client.Heartbeat) bool {
	text := c.GetHeader(headerSequence)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		server.Fail(c, &errs.Error{
			Kind: errs.Malformed, Field: headerSequence, Message: "must be a positive number that is higher in every call, is " + strconv.Quote(text),
		})
		return false
	}
	h.Sequence = n
	by := server.OwnInstance(c)
	err = a.cfg.Operations.Heartbeat(c.Request.Context(), string(by), h)
	if errs.Is(err, errs.AlreadyExists) { // a replayed request
		err = &errs.Error{Kind: errs.Unauthenticated, Field: headerSequence, Message: "was used already: " + errs.MessageOf(err), Err: err}
	}
	if err != nil {
		server.Fail(c, err)
		return false
	}
	if h.Joined != nil || h.Left != "" {
		a.cfg.Players.Took(a.cfg.Operations.Snapshot(), by, h)
	}
	return true
}
