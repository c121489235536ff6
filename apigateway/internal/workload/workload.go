// Package workload serves what servers and proxies call from inside, each for itself: the
// instance is the one whose own token is sent.
//
// What changes something carries a number that is higher in every call. The instance's
// agent takes number and content together, so nothing counts twice, whichever gateway it
// goes through. Bodies are read leniently: known plugins send more than is wanted here.
package workload

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/events"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/presence"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// headerSequence numbers what an instance says: each call's is higher than the one before.
const headerSequence = "X-Prexor-Sequence"

// saysReady is the state an instance gives itself when it serves.
const saysReady = "ONLINE"

// Config is what the API needs; all of it is required.
type Config struct {
	Operations *operate.Operations
	Auth       *auth.Service
	// Players takes what was handed over.
	Players *presence.Table
	// Tickets open the stream of events; HasRoom reports whether one would find a place there,
	// and answers who has none.
	Tickets *events.Tickets
	HasRoom func(*gin.Context, fleet.Credential) bool
	// Tell tells the clients of all gateways of an event that is live only.
	Tell func(events.Event)
	// StateOf is a state in the words of the known plugins.
	StateOf func(fleet.State) string
	Now     func() time.Time
}

// API serves the calls of instances.
type API struct {
	cfg       Config
	refreshes pace
	tickets   pace
	said      pace
	measures  pace
}

// New wires the API.
func New(cfg Config) *API {
	return &API{
		cfg:       cfg,
		refreshes: pace{limit: maxRefreshes, window: time.Minute, now: cfg.Now},
		tickets:   pace{limit: maxTickets, window: time.Minute, now: cfg.Now},
		said:      pace{limit: maxEvents, window: time.Second, now: cfg.Now},
		measures:  pace{limit: maxMeasures, window: time.Second, now: cfg.Now},
	}
}

// Routes are all routes, of servers and of proxies.
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

// serverRoutes are those of servers alone, proxyRoutes those of proxies.
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
		server.Post("/transfer-ack/:uuid", server.Own, a.asProxy(a.ackTransfer)),
		server.Get("/messages/pending", server.Own, a.asProxy(a.pendingMessages)),
		server.Post("/messages/:id/ack", server.Own, a.asProxy(a.ackMessage)),
	}
}

// asProxy serves proxies only. A server reads neither all players and networks nor messages
// and transfers of players, and it acknowledges none.
func (a *API) asProxy(serve gin.HandlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) {
		s := a.cfg.Operations.Snapshot()
		if !isProxy(s, server.OwnInstance(c)) {
			server.Fail(c, errs.New(errs.Denied, "only proxies may: the platform of this instance's group is no proxy: give it one that is, such as VELOCITY, or add it to the catalog with category PROXY"))
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

// bind reads a body, of which fields that nobody knows are left alone; false means that
// the request was answered.
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

// ready takes that the instance serves. With readiness heartbeat it is RUNNING then.
func (a *API) ready(c *gin.Context) { a.say(c, client.Heartbeat{State: saysReady}) }

// heartbeat takes a sign of life and what the instance knows of its players.
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

// say hands over what the instance says, with its number, and answers.
func (a *API) say(c *gin.Context, h client.Heartbeat) {
	if a.handOver(c, h) {
		c.JSON(http.StatusOK, gin.H{"status": "ok"})
	}
}

// handOver gives an instance's agent what it says; false means that the request was answered.
func (a *API) handOver(c *gin.Context, h client.Heartbeat) bool {
	text := c.GetHeader(headerSequence)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		server.Fail(c, &errs.Error{
			Kind: errs.Malformed, Field: headerSequence, Message: "must be a positive number that is higher in every call; it is " + strconv.Quote(text),
		})
		return false
	}
	h.Sequence = n
	by := server.OwnInstance(c)
	err = a.cfg.Operations.Heartbeat(c.Request.Context(), string(by), h)
	if errs.Is(err, errs.AlreadyExists) { // somebody repeats what was overheard
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
