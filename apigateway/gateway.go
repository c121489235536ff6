// Package apigateway is the service all clients speak to: Orrery's own API and the
// older one of Universe on one listener, with one authentication and one audit, and
// the stream of events.
//
//	client → server (ids, limits, who may) → rest | universe | events → operate → etcd
//	                                                    └→ upstream → agents, templatesvc, schedulers
//
// It writes what people want and shows what is; it decides nothing and holds
// nothing that is not in etcd, so any number of replicas serve side by side.
package apigateway

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/apigateway/internal/auditsink"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/bell"
	"github.com/orreryhq/orrery/apigateway/internal/command"
	"github.com/orreryhq/orrery/apigateway/internal/console"
	"github.com/orreryhq/orrery/apigateway/internal/declare"
	"github.com/orreryhq/orrery/apigateway/internal/events"
	"github.com/orreryhq/orrery/apigateway/internal/later"
	"github.com/orreryhq/orrery/apigateway/internal/logs"
	"github.com/orreryhq/orrery/apigateway/internal/mail"
	"github.com/orreryhq/orrery/apigateway/internal/openapi"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/pins"
	"github.com/orreryhq/orrery/apigateway/internal/presence"
	"github.com/orreryhq/orrery/apigateway/internal/relay"
	"github.com/orreryhq/orrery/apigateway/internal/rest"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/settings"
	"github.com/orreryhq/orrery/apigateway/internal/share"
	"github.com/orreryhq/orrery/apigateway/internal/shell"
	"github.com/orreryhq/orrery/apigateway/internal/universe"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/apigateway/internal/workload"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/series"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
)

// Service is how the gateway's sessions are filed.
const serviceName = "apigateway"

// What an API that faces the world should have; see Limits.
const (
	defaultAnonymous = 100
	defaultLogins    = 10
	defaultTickets   = 120
)

// minSecret is the length of the shortest usable cluster secret.
const minSecret = 16

// Limits of requests per minute, on all gateways together. A negative value sets none, 0 the
// default.
type Limits struct {
	// Anonymous are requests without a valid token from an address; 100 by default.
	Anonymous int
	// Logins are attempts to log in from an address; 10 by default.
	Logins int
	// Names are attempts to log in under a user name; none by default.
	Names int
	// Users are requests of a user; none by default.
	Users int
	// Tickets are the tickets for streams that a user gets; 120 by default.
	Tickets int
}

// CheckAuditSink reports whether Config.AuditSink can be understood.
func CheckAuditSink(target string) error { return auditsink.Check(target) }

// MaxLockoutFailures is the largest Lockout.Failures: the time of each is kept.
const MaxLockoutFailures = 100

// Lockout says when a user name is locked out, on all gateways. They should have the same.
type Lockout struct {
	// Failures is how many wrong passwords within Window lock a name out for Duration; 5 by
	// default. A negative value locks out nobody.
	Failures int
	// Window and Duration are 15 minutes by default.
	Window, Duration time.Duration
}

// PasswordReset says how a token that resets a forgotten password reaches its user. The zero
// value resets none.
type PasswordReset struct {
	// Log writes it to the log, for who reads that.
	Log bool
	// Mail sends it to the user's address through a server.
	Mail *MailServer
	// URL is the page the mail leads to, with ?token=; empty: the mail has the token alone.
	URL string
}

// MailServer is a mail server.
type MailServer = mail.Server

// Config is what the service needs. Store, View, Log, Replica and ClusterSecret
// are required, and one of Listen and Listener.
type Config struct {
	Store *store.Client
	// View is shared with whoever else is in the process. New subscribes to it, so
	// its Run comes after New.
	View *view.View
	Log  *slog.Logger
	// Records are the last records of this process' log. Nil: those of Log from New on are kept.
	Records *telemetry.Ring
	// Metrics takes the service's metrics. Nil drops them.
	Metrics prometheus.Registerer
	// MetricsPublic shows them under /api/metrics to everybody, not only to who may see them.
	MetricsPublic bool
	// Listen is the address to serve on; port 0 picks a free one.
	Listen string
	// Listener is used instead of Listen when not nil; Run closes it.
	Listener net.Listener
	// APIURL is where others reach the gateway; empty means the listener's own address.
	APIURL string
	// Meta identifies the cluster; the zero value is read from the store.
	Meta fleet.Meta
	// ClusterSecret proves the gateway to other services and seals its keys.
	ClusterSecret string
	// AdminPassword is the first user's at the first start; when empty one is
	// generated and written to AdminPasswordFile.
	AdminPassword, AdminPasswordFile string
	// Origins are those browsers may call from beside the gateway's own; "*" allows any, and
	// without any only pages of the gateway's own origin call. Credentials are never allowed:
	// tokens are not cookies.
	Origins []string
	// AllowedSubnets are whence the API may be used, as CIDRs; none allows any.
	AllowedSubnets []string
	// TrustedProxies are those whose X-Forwarded-For is believed, as CIDRs.
	TrustedProxies []string
	Limits         Limits
	// MaxStreams is how many streams of events are open at a time. 0 means 2,000.
	MaxStreams int
	// UserStreams is how many streams of a kind one user has open at a time: of events, of
	// consoles, of consoles for commands and of logs. It is half of all at most. 0 means 100.
	UserStreams int
	Lockout     Lockout
	Reset       PasswordReset
	// NoShares is true when nobody may share texts by links, and nobody reads those there are.
	NoShares bool
	// AuditSink is where each entry of the audit that this gateway writes is also written as a
	// line of JSON: a file, syslog, udp://host:port or tcp://host:port. Empty: nowhere.
	AuditSink string
	// Replica is this process' name among the gateways.
	Replica string
	// NodeID names this gateway to clients of the older API. Empty means Replica.
	NodeID string
	// ClusterName is told to clients of the older API. Empty means "orrery".
	ClusterName string
	// Version is shown to clients and in the replica's session record.
	Version string
	// SessionTTL is how long the session outlives its last keep-alive. 0 means store.DefaultTTL.
	SessionTTL time.Duration
	// Takeover ends a predecessor's session of the same name: only for whoever holds
	// proof that it is gone.
	Takeover bool
	// lookup finds the addresses of hosts. Nil means the host's resolver.
	lookup operate.Lookup
	// passwordCost is the work of hashing a password, pause what waits before one is looked at
	// after wrong ones. The zero values are for production.
	passwordCost auth.Cost
	pause        func(context.Context, time.Duration) bool
	// pinTime bounds the time that an answer waits for the first download of a version in the
	// catalog. 0 means 10 s.
	pinTime time.Duration
	// Now is the clock by which tokens expire and times are told. Nil means time.Now.
	Now func() time.Time
}

// Gateway is the service. Make it with New.
type Gateway struct {
	cfg     Config
	metrics *telemetry.Metrics
	events  *events.Log
	auth    *auth.Service
	operate *operate.Operations
	// copies takes the entries of the audit; nil when they are copied nowhere.
	copies    *auditsink.Sink
	agents    *upstream.Agents
	templates *upstream.Templates
	shares    *share.Shares
	bell      *bell.Bell
	declare   *declare.Applier
	// pins completes the hashes of the catalog.
	pins    *pins.Pinner
	players *presence.Table
	// past is how the fleet did since the gateway began.
	past *series.Ring
	// relay tells other gateways of what is live only.
	relay *relay.Relay
	// heartbeats tells of nodes that no longer report.
	heartbeats *events.Heartbeats
	// endings are when instances ended, for lists.
	endings *rest.Endings
	// arrivals ends transfers of players.
	arrivals *presence.Arrivals
	// settings are those that hold now.
	settings *settings.Live
	// health tells of the services that are called.
	health *upstream.Health
	// calls has the connections to other services, uploads those of what takes long.
	calls, uploads *http.Transport

	addr      atomic.Value // string
	startedAt time.Time
	// frame has the routes; it is there when ready is closed.
	frame *server.Server

	ready   chan struct{}
	serving atomic.Bool
	// ending is closed by end, when a client asked this replica to end.
	ending chan struct{}
	end    func()
}

// New makes a gateway that waits for Run. Invalid when something required is missing.
func New(cfg Config) (*Gateway, error) {
	switch {
	case cfg.Store == nil, cfg.View == nil, cfg.Log == nil:
		return nil, errs.New(errs.Invalid, "apigateway: Store, View and Log are required")
	case cfg.Replica == "":
		return nil, errs.Field("replica", "a name for this replica is required")
	case len(cfg.ClusterSecret) < minSecret:
		return nil, errs.Field("cluster.secret", "must have at least %d characters and be the same for all services", minSecret)
	case cfg.Listen == "" && cfg.Listener == nil:
		return nil, errs.Field("listen", "an address to serve on is required")
	}
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.lookup == nil {
		cfg.lookup = net.DefaultResolver.LookupNetIP
	}
	cfg.pinTime = cmp.Or(cfg.pinTime, 10*time.Second)
	own, err := cfg.settings()
	if err != nil {
		return nil, err
	}
	if cfg.Records == nil {
		cfg.Records = telemetry.NewRing(serviceName+"/"+cfg.Replica, 0)
		cfg.Log = slog.New(cfg.Records.Handler(cfg.Log.Handler()))
	}
	cfg.NodeID, cfg.ClusterName = cmp.Or(cfg.NodeID, cfg.Replica), cmp.Or(cfg.ClusterName, "orrery")
	live := settings.New(own)
	var g *Gateway
	g = &Gateway{
		cfg: cfg, settings: live, metrics: telemetry.NewMetrics(cfg.Metrics, serviceName), events: events.NewLog(0), bell: bell.New(), players: presence.New(cfg.Now), past: rest.NewPast(),
		calls: newTransport(), uploads: newTransport(), ready: make(chan struct{}), ending: make(chan struct{}), startedAt: cfg.Now(),
		auth: auth.New(auth.Config{
			Store: cfg.Store, View: cfg.View, Log: cfg.Log, Now: cfg.Now, ClusterSecret: cfg.ClusterSecret,
			Session:       func() time.Duration { return live.Now().Session },
			AdminPassword: cfg.AdminPassword, AdminPasswordFile: cfg.AdminPasswordFile, PasswordCost: cfg.passwordCost,
			Audited: func(ctx context.Context, by, action, user, details string, writes ...store.Write) error {
				_, err := g.operate.Record(ctx, operate.Actor{User: by}, action, "user", user, details, writes...)
				return err
			},
		}),
	}
	g.end = sync.OnceFunc(func() { close(g.ending) })
	g.health = upstream.NewHealth(g.metrics, cfg.Log)
	box, err := seal.NewBox(cfg.ClusterSecret, fleet.SecretsKind)
	if err != nil {
		return nil, err
	}
	g.agents = upstream.NewAgents(g.health, cfg.View, upstream.DialAgents(calling(g.calls), cfg.ClusterSecret))
	if g.copies, err = auditsink.New(cfg.AuditSink, cfg.Log, g.metrics); err != nil {
		return nil, err
	}
	g.operate = operate.New(operate.Config{
		Store: cfg.Store, View: cfg.View, Log: cfg.Log, Now: cfg.Now, Copy: g.copies.Put, Pause: cfg.pause,
		Agents: g.agents, Seal: box,
		Settings: live.Now, TellReset: cfg.Reset.tell(cfg.Log, live.Now),
	})
	g.templates = upstream.NewTemplates(g.health, cfg.View, cfg.ClusterSecret, calling(g.calls), calling(g.uploads), cfg.Log)
	g.pins = pins.New(pins.Config{
		View: cfg.View, Download: g.templates.Pin, Log: cfg.Log,
		Keep: func(ctx context.Context, v pins.Version, url, sha256 string) error {
			return g.operate.PinCatalogVersion(ctx, v.Platform, v.Version, url, sha256)
		},
	})
	cfg.View.Subscribe(g.pins.Hear)
	g.relay = relay.New(relay.Config{
		Replica: cfg.Replica, Peers: func() []*fleet.Session { return cfg.View.Snapshot().ServiceSessions(serviceName) },
		Secret: cfg.ClusterSecret, Client: calling(g.calls), Events: g.events, End: g.end, Log: cfg.Log, Metrics: g.metrics,
	})
	g.shares = share.New(share.Config{Store: cfg.Store, Operations: g.operate, Now: cfg.Now})
	cfg.View.Subscribe(g.events.Hear)
	g.heartbeats = events.NewHeartbeats(g.events.Tell)
	cfg.View.Subscribe(g.heartbeats.Hear)
	g.endings = rest.NewEndings(cfg.Now)
	cfg.View.Subscribe(g.endings.Hear)
	cfg.View.Subscribe(g.bell.Hear)
	g.declare = declare.New(declare.Config{
		Store: cfg.Store, Operations: g.operate, ReadGroup: rest.ReadGroup, ReadConfiguration: universe.ReadConfiguration, ReadVersion: rest.ReadCatalogVersion, Every: declareEvery, Log: cfg.Log,
	})
	cfg.View.Subscribe(g.declare.Hear)
	cfg.View.Subscribe(g.players.Hear)
	g.arrivals = presence.NewArrivals(presence.Arrivals{View: cfg.View, End: g.operate.EndTransfer, Log: cfg.Log, Now: cfg.Now})
	cfg.View.Subscribe(g.arrivals.Hear)
	cfg.View.Subscribe(g.settings.Hear)
	g.addr.Store("")
	if cfg.Listener != nil {
		g.addr.Store(cfg.Listener.Addr().String())
	}
	return g, nil
}

// dialPatience is how long another service may take to accept a connection.
const dialPatience = 5 * time.Second

func newTransport() *http.Transport {
	return &http.Transport{
		DialContext: (&net.Dialer{Timeout: dialPatience}).DialContext, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute,
	}
}

// calling is a client that hands on which request its calls are for.
func calling(t *http.Transport) *http.Client { return &http.Client{Transport: upstream.Correlated(t)} }

// Addr is the address the gateway has, "" before it listens.
func (g *Gateway) Addr() string {
	addr, _ := g.addr.Load().(string)
	return addr
}

// Ready is closed when the gateway serves.
func (g *Gateway) Ready() <-chan struct{} { return g.ready }

// gathered are the process' metrics, nil where what takes them cannot show them.
func (g *Gateway) gathered() prometheus.Gatherer {
	all, _ := g.cfg.Metrics.(prometheus.Gatherer)
	return all
}

// openStreams are what of a gateway's answers does not end by itself.
type openStreams struct {
	events   *events.Streams
	consoles *console.Streams
	shell    *shell.Shell
	logs     *logs.Logs
}

// Close ends them; their clients come back elsewhere.
func (o openStreams) Close() {
	o.events.Close()
	o.consoles.Close()
	o.shell.Close()
	o.logs.Close()
}

// wire makes the frame, and in it the routes of both dialects, of the
// events and of the consoles.
func (g *Gateway) wire(meta fleet.Meta) (openStreams, error) {
	frame := server.New(server.Config{
		Auth: g.auth, Operations: g.operate, View: g.cfg.View, Log: g.cfg.Log, Metrics: g.metrics, Now: g.cfg.Now,
		Settings: g.settings, Secret: g.cfg.ClusterSecret,
		Replicas: func() int { return max(1, len(g.cfg.View.Snapshot().ServiceSessions(serviceName))) },
	})
	sources, err := operate.NewSources(g.operate, g.cfg.ClusterSecret)
	if err != nil {
		return openStreams{}, err
	}
	tickets := events.NewTickets(g.cfg.Store, 0, func(ctx context.Context, rev int64) error {
		_, err := g.cfg.View.WaitRev(ctx, rev)
		return err
	})
	records := logs.New(logs.Config{
		Records: g.cfg.Records, Service: serviceName, Replica: g.cfg.Replica, View: g.cfg.View, Auth: g.auth, Tickets: tickets,
		Agents: g.agents, Client: calling(g.calls), Secret: g.cfg.ClusterSecret, OfUser: g.cfg.UserStreams, Log: g.cfg.Log, Metrics: g.metrics,
	})
	frame.Add(rest.New(rest.Config{
		Store: g.cfg.Store, View: g.cfg.View, Auth: g.auth, Operations: g.operate, Templates: g.templates, Pins: g.pins, PinTime: g.cfg.pinTime, Sources: sources,
		Schedulers: upstream.NewSchedulers(g.health, g.cfg.Store, g.cfg.View, g.cfg.ClusterSecret, calling(g.calls)),
		Logs:       records, Shares: g.shares, NoShares: g.cfg.NoShares, APIURL: g.cfg.APIURL,
		Players: g.players, Stale: g.heartbeats.Stale, Endings: g.endings, Past: g.past, Settings: g.settings, End: g.end, Replica: g.cfg.Replica, ClusterName: g.cfg.ClusterName,
		Ready: g.waiting, WithinName: frame.WithinName, WithinPictures: frame.WithinPictures, Meta: meta, Version: g.cfg.Version, Log: g.cfg.Log, Now: g.cfg.Now,
	}).Routes()...)
	told := events.New(events.Config{
		Store: g.cfg.Store, Log: g.events, Tickets: tickets, ClusterID: meta.ClusterID, Caller: streamCaller,
		While: func(ctx context.Context, by fleet.Credential) (context.Context, func(), error) {
			if by.Instance != "" {
				return g.auth.WhileInstance(ctx, by)
			}
			return g.auth.While(ctx, by, auth.EventsStream)
		},
		Sight: func(by fleet.Credential) events.Sight {
			if by.Instance == "" {
				return events.Sight{Sees: func(e events.Event) bool { return e.Needs == "" || g.auth.May(by, e.Needs) == nil }}
			}
			return events.SightOf(g.cfg.View.Snapshot, by.Instance)
		},
		Consoles:   func(c *gin.Context) bool { return server.Allowed(c, auth.InstancesConsole) },
		MaxClients: g.cfg.MaxStreams, OfUser: g.cfg.UserStreams, Slog: g.cfg.Log, Metrics: g.metrics,
	})
	frame.Add(workload.New(workload.Config{
		Operations: g.operate, Auth: g.auth, Players: g.players, Tickets: tickets, HasRoom: told.HasRoom, Tell: g.relay.Tell, StateOf: rest.StateOf, Now: g.cfg.Now,
	}).Routes()...)
	frame.Add(universe.New(universe.Config{
		Operations: g.operate, Templates: g.templates, Sources: sources, NodeID: g.cfg.NodeID, ClusterName: g.cfg.ClusterName,
		By: server.Actor, Shown: server.Shown, May: server.Allowed, Now: g.cfg.Now, Metrics: g.gathered(), MetricsPublic: g.cfg.MetricsPublic,
		Self: universe.Self{
			Version: g.cfg.Version, StartedAt: g.startedAt, Address: g.Addr, APIURL: g.cfg.APIURL, Debug: g.cfg.Log.Enabled(context.Background(), slog.LevelDebug),
		},
	}).Routes()...)
	streams := openStreams{
		events: told,
		consoles: console.New(console.Config{
			View: g.cfg.View, Auth: g.auth, Operations: g.operate, Tickets: tickets, Bell: g.bell,
			Origins: func() []string { return g.settings.Now().Origins },
			OfUser:  g.cfg.UserStreams, Log: g.cfg.Log, Metrics: g.metrics,
		}),
		shell: shell.New(shell.Config{
			Commands: command.New(command.Config{
				Operations: g.operate, Sources: sources, Auth: g.auth, ClusterName: g.cfg.ClusterName, ClusterID: meta.ClusterID,
				Replica: g.cfg.Replica, End: g.end, EndOther: g.relay.AskToEnd, Now: g.cfg.Now,
			}),
			Operations: g.operate, Auth: g.auth, Tickets: tickets, NodeID: fleet.NodeID(g.cfg.NodeID), Origins: func() []string { return g.settings.Now().Origins }, OfUser: g.cfg.UserStreams, Metrics: g.metrics,
		}),
		logs: records,
	}
	frame.Add(
		server.Post("/api/v1/events/ticket", server.Needs(auth.EventsStream), streams.events.Ticket).IssuesTickets(),
		server.Get("/api/v1/events/stream", server.Ticketed, streams.events.Stream),
	)
	frame.Add(streams.consoles.Routes()...)
	frame.Add(streams.shell.Routes()...)
	frame.Add(streams.logs.Routes()...)
	pages, err := openapi.New(g.cfg.Version)
	if err != nil {
		return streams, err
	}
	frame.Add(pages.Routes()...)
	frame.Add(later.Routes(g.cfg.View)...)
	g.frame = frame
	return streams, g.metrics.Err()
}

// settings are the gateway's own, which versions of the cluster's may take the place of.
func (c Config) settings() (settings.Settings, error) {
	limit := func(set, otherwise int) int { return max(0, cmp.Or(set, otherwise)) }
	out := settings.Settings{
		Origins: c.Origins, Anonymous: limit(c.Limits.Anonymous, defaultAnonymous), Logins: limit(c.Limits.Logins, defaultLogins),
		Names: max(0, c.Limits.Names), Users: max(0, c.Limits.Users), Tickets: limit(c.Limits.Tickets, defaultTickets),
		Session: auth.SessionTTL, Reset: operate.ResetTTL, Lockout: c.Lockout.effective(),
	}
	var err error
	if out.Subnets, err = settings.Prefixes("network.allowed-subnets", c.AllowedSubnets); err != nil {
		return out, err
	}
	out.Proxies, err = settings.Prefixes("network.trusted-proxies", c.TrustedProxies)
	return out, err
}

// effective is the policy with its defaults.
func (l Lockout) effective() settings.Lockout {
	const failures, quarter = 5, 15 * time.Minute
	out := settings.Lockout{Off: l.Failures < 0, Failures: l.Failures, Window: cmp.Or(l.Window, quarter), Duration: cmp.Or(l.Duration, quarter)}
	if l.Failures <= 0 {
		out.Failures = failures
	}
	return out
}
