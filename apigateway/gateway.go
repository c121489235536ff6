// Package apigateway is the service that all clients use. It serves Orrery's own API and Universe's
// older one on one listener, with common authentication and audit, and the event stream.
//
//	client → server (IDs, limits, permissions) → api | universe | events → ops → etcd
//	                                                           └→ upstream → agents, templatesvc, schedulers
//
// It stores what users want and shows the current state. It makes no placement decisions and keeps
// no state outside etcd, so any number of replicas can run.
package apigateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/apigateway/internal/api"
	"github.com/orreryhq/orrery/apigateway/internal/api/catalog"
	"github.com/orreryhq/orrery/apigateway/internal/api/groups"
	"github.com/orreryhq/orrery/apigateway/internal/api/instances"
	"github.com/orreryhq/orrery/apigateway/internal/api/system"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/auth/oidclogin"
	"github.com/orreryhq/orrery/apigateway/internal/background/auditsink"
	"github.com/orreryhq/orrery/apigateway/internal/background/autorollback"
	"github.com/orreryhq/orrery/apigateway/internal/background/cataloghash"
	"github.com/orreryhq/orrery/apigateway/internal/background/drains"
	"github.com/orreryhq/orrery/apigateway/internal/background/gitops"
	"github.com/orreryhq/orrery/apigateway/internal/background/notices"
	"github.com/orreryhq/orrery/apigateway/internal/background/schedules"
	"github.com/orreryhq/orrery/apigateway/internal/certificate"
	"github.com/orreryhq/orrery/apigateway/internal/compat/command"
	"github.com/orreryhq/orrery/apigateway/internal/compat/commandapi"
	"github.com/orreryhq/orrery/apigateway/internal/compat/notimplemented"
	"github.com/orreryhq/orrery/apigateway/internal/compat/universe"
	"github.com/orreryhq/orrery/apigateway/internal/openapi"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/groupops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/sourceops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/server/peer"
	"github.com/orreryhq/orrery/apigateway/internal/server/settings"
	"github.com/orreryhq/orrery/apigateway/internal/sharedtext"
	"github.com/orreryhq/orrery/apigateway/internal/stream/console"
	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
	"github.com/orreryhq/orrery/apigateway/internal/stream/logs"
	"github.com/orreryhq/orrery/apigateway/internal/stream/notify"
	"github.com/orreryhq/orrery/apigateway/internal/stream/relay"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/apigateway/internal/workload"
	"github.com/orreryhq/orrery/apigateway/internal/workload/presence"
	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/series"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/trust"
)

// serviceName is the service name of the gateway's sessions.
const serviceName = "apigateway"

// Gateway is the service. Create it with New.
type Gateway struct {
	cfg     Config
	metrics *telemetry.Metrics
	events  *events.Log
	auth    *auth.Service
	operate *ops.Operations
	// provider is the login provider.
	provider   *oidclogin.Provider
	groupRoles []account.GroupRole
	// copies copies audit entries to AuditSink; nil without one.
	copies    *auditsink.Sink
	agents    *upstream.Agents
	templates *upstream.Templates
	shares    *sharedtext.Shares
	changes   *notify.Changes
	applier   *gitops.Applier
	// schedules runs scheduled actions and overlays.
	schedules *schedules.Runner
	// notices delivers outgoing notices.
	notices *notices.Runner
	// hasher completes the hashes of the catalog.
	hasher *cataloghash.Hasher
	// drains completes the drains of nodes.
	drains *drains.Completer
	// schedulers answers questions.
	schedulers *upstream.Schedulers
	// rollbacks rolls back failed deployments.
	rollbacks *autorollback.Watcher
	players   *presence.Table
	// past has the fleet's metrics since the gateway started.
	past *series.Ring
	// relay sends live events to other gateways.
	relay *relay.Relay
	// heartbeats publishes events about nodes that stop reporting.
	heartbeats *events.Heartbeats
	// endings has the times at which instances ended, for lists.
	endings *instances.Endings
	// arrivals ends transfers of players.
	arrivals *presence.Arrivals
	// evacuations empties retiring instances.
	evacuations *presence.Evacuations
	// settings are the settings in effect.
	settings *settings.Live
	// health reports on the other services.
	health *upstream.Health
	// calls has the connections to other services, uploads those for long transfers, and gateways those to
	// other gateways.
	calls, uploads, gateways upstream.Connections
	// peers calls other gateways.
	peers *peer.Client
	// key identifies the cluster's gateways. certificates is nil if the API is served without TLS.
	key          *certificate.Peer
	certificates *certificate.Source

	addr      atomic.Value // string
	startedAt time.Time
	// frame has the routes. It is set when ready is closed.
	frame *server.Server

	ready   chan struct{}
	serving atomic.Bool
	// insecureHTTP is set if other hosts reach the API without TLS.
	insecureHTTP atomic.Bool
	// nodeAuthority issues the certificates of nodes; nil if the gateway serves none.
	nodeAuthority *pki.Authority
	// serviceAuthority renews the certificates of services; nil if the gateway renews none.
	serviceAuthority *pki.Authority
	// ring has the keys that seal secrets.
	ring *seal.Ring
	// ending is closed when a client asked this replica to shut down.
	ending chan struct{}
	end    func()
}

// New returns a Gateway. Call Run to start it. New returns Invalid if a required field is missing.
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
	if cfg.Peers == nil {
		cfg.Peers = trust.BySecret(cfg.ClusterSecret)
	}
	ring, err := seal.NewRing(cfg.ClusterSecret, cfg.SealKey, func(ctx context.Context) (account.Keyring, error) {
		return store.Get(ctx, cfg.Store, keys.Keyring())
	})
	if err != nil {
		return nil, err
	}
	if err := cfg.Peers.CheckOwn(pki.Identity{Service: pki.Gateway}); err != nil {
		return nil, err
	}
	if err := cfg.Peers.CheckURL("peers.url", cfg.PeerURL); err != nil {
		return nil, err
	}
	authority, err := cfg.nodeAuthority()
	if err != nil {
		return nil, err
	}
	forServices, err := cfg.serviceAuthority()
	if err != nil {
		return nil, err
	}
	own, err := cfg.settings()
	if err != nil {
		return nil, err
	}
	if cfg.Listener != nil {
		if err := cfg.Transport.Check(cfg.Listener.Addr()); err != nil {
			return nil, err
		}
	}
	if cfg.Records == nil {
		cfg.Records = telemetry.NewRing(serviceName+"/"+cfg.Replica, 0)
		cfg.Log = slog.New(cfg.Records.Handler(cfg.Log.Handler()))
	}
	cfg.NodeID, cfg.ClusterName = cmp.Or(cfg.NodeID, cfg.Replica), cmp.Or(cfg.ClusterName, "orrery")
	live := settings.New(own)
	var g *Gateway
	g = &Gateway{
		nodeAuthority: authority, serviceAuthority: forServices, ring: ring,
		cfg: cfg, settings: live, metrics: telemetry.NewMetrics(cfg.Metrics, serviceName), events: events.NewLog(0), changes: notify.New(), players: presence.New(cfg.Now), past: system.NewPast(),
		calls: upstream.NewConnections(cfg.Peers, newTransport()), uploads: upstream.NewConnections(cfg.Peers, newTransport()), ready: make(chan struct{}), ending: make(chan struct{}), startedAt: cfg.Now(),
		auth: auth.New(auth.Config{
			Store: cfg.Store, View: cfg.View, Log: cfg.Log, Now: cfg.Now, Ring: ring,
			Session:       func() time.Duration { return live.Now().Session },
			AdminPassword: cfg.AdminPassword, AdminPasswordFile: cfg.AdminPasswordFile, PasswordCost: cfg.passwordCost,
			Audited: func(ctx context.Context, by, action, user, details string, writes ...store.Write) error {
				_, err := g.operate.Record(ctx, txn.Actor{User: by}, action, "user", user, details, writes...)
				return err
			},
		}),
	}
	g.end = sync.OnceFunc(func() { close(g.ending) })
	if err := g.identify(); err != nil {
		return nil, err
	}
	g.health = upstream.NewHealth(g.metrics, cfg.Log)
	if g.provider, g.groupRoles, err = cfg.OIDC.provider(&g.cfg, ring.Values(content.SecretsKind), g.calls.Outside, g.url); err != nil {
		return nil, err
	}
	g.agents = upstream.NewAgents(g.health, cfg.View, upstream.DialAgents(g.calls))
	if g.copies, err = auditsink.New(cfg.AuditSink, cfg.Log, g.metrics); err != nil {
		return nil, err
	}
	g.schedulers = upstream.NewSchedulers(g.health, cfg.Store, cfg.View, g.calls)
	g.operate = ops.New(ops.Config{
		Store: cfg.Store, View: cfg.View, Log: cfg.Log, Now: cfg.Now, Copy: g.copies.Put, Pause: cfg.pause,
		Agents: g.agents, Seal: ring, EventTypes: events.Kept(), Simulate: g.schedulers.Simulate,
		Settings: live.Now, TellReset: cfg.Reset.tell(cfg.Log, live.Now),
	})
	g.templates = upstream.NewTemplates(g.health, cfg.View, g.calls, g.uploads, cfg.Log)
	g.hasher = cataloghash.New(cataloghash.Config{
		View: cfg.View, Download: g.templates.Pin, Log: cfg.Log,
		SetHash: func(ctx context.Context, v cataloghash.Version, url, sha256 string) error {
			return g.operate.PinCatalogVersion(ctx, v.Platform, v.Version, url, sha256)
		},
	})
	cfg.View.Subscribe(g.hasher.OnBatch)
	cfg.View.Subscribe(g.reloadKeys)
	g.drains = drains.New(drains.Config{View: cfg.View, Continue: g.operate.ContinueDrain, Tell: g.tellDrained, Log: cfg.Log})
	cfg.View.Subscribe(g.drains.OnBatch)
	g.metrics.GaugeFunc("draining", "nodes", "Nodes that are being drained.", func() float64 { return float64(drains.Count(cfg.View.Snapshot())) })
	g.metrics.GaugesFunc("kept", "records", "Records in etcd of kinds that grow and are removed when they are old or too many.", []string{"kind"}, func(tell func(float64, ...string)) {
		countRecords(cfg.View.Snapshot(), tell)
	})
	g.rollbacks = autorollback.New(autorollback.Config{
		View: cfg.View, Log: cfg.Log,
		RollBack: func(ctx context.Context, name fleet.GroupName, number int64) error {
			_, _, err := g.operate.RollbackDeployment(ctx, txn.Actor{User: "automatic rollback"}, groupops.DeploymentWrite{Group: name, Number: number})
			return err
		},
	})
	cfg.View.Subscribe(g.rollbacks.OnBatch)
	g.relay = relay.New(relay.Config{
		Replica: cfg.Replica, Peers: func() []*cluster.Session { return cfg.View.Snapshot().ServiceSessions(serviceName) },
		Client: g.peers, Events: g.events, End: g.end, Log: cfg.Log, Metrics: g.metrics,
	})
	g.shares = sharedtext.New(sharedtext.Config{Store: cfg.Store, Operations: g.operate, Now: cfg.Now})
	cfg.View.Subscribe(g.events.OnBatch)
	g.heartbeats = events.NewHeartbeats(g.events.Publish)
	cfg.View.Subscribe(g.heartbeats.OnBatch)
	g.endings = instances.NewEndings(cfg.Now)
	cfg.View.Subscribe(g.endings.OnBatch)
	cfg.View.Subscribe(g.changes.OnBatch)
	g.applier = gitops.New(gitops.Config{
		Store: cfg.Store, Operations: g.operate, ReadGroup: groups.DecodePut, ReadConfiguration: universe.ReadConfiguration, ReadVersion: catalog.DecodeVersion, Every: declareEvery, Log: cfg.Log,
	})
	cfg.View.Subscribe(g.applier.OnBatch)
	g.schedules = schedules.New(schedules.Config{
		Store: cfg.Store, View: cfg.View, Operations: g.operate.Schedules, Service: serviceName, Replica: cfg.Replica,
		Log: cfg.Log, Metrics: g.metrics, Now: cfg.Now,
	})
	cfg.View.Subscribe(g.schedules.OnBatch)
	g.notices = notices.New(notices.Config{
		Store: cfg.Store, View: cfg.View, Operations: g.operate.Notices, Events: events.NewSource(cfg.Store, g.events, cfg.Log), Cluster: cfg.ClusterName,
		Egress:  egress.Policy{Allowed: func(context.Context) (egress.Allowed, error) { return egress.Parse(live.Now().Egress), nil }},
		Service: serviceName, Replica: cfg.Replica, Log: cfg.Log, Metrics: g.metrics, Now: cfg.Now,
	})
	cfg.View.Subscribe(g.notices.OnBatch)
	cfg.View.Subscribe(g.players.OnBatch)
	g.arrivals = presence.NewArrivals(presence.Arrivals{View: cfg.View, End: g.operate.EndTransfer, Log: cfg.Log, Now: cfg.Now})
	cfg.View.Subscribe(g.arrivals.OnBatch)
	cfg.View.Subscribe(g.operate.OnClaims)
	g.evacuations = presence.NewEvacuations(cfg.View, g.operate.Evacuate, cfg.Log, cfg.Now)
	cfg.View.Subscribe(g.evacuations.OnBatch)
	cfg.View.Subscribe(g.settings.OnBatch)
	g.addr.Store("")
	if cfg.Listener != nil {
		g.addr.Store(cfg.Listener.Addr().String())
	}
	return g, nil
}

// reloadKeys reads the keyring again when etcd was restored from a backup, which may have an older one.
func (g *Gateway) reloadKeys(b view.Batch) {
	if !b.Rewound {
		return
	}
	g.operate.Enqueue(func(ctx context.Context) {
		if _, err := g.ring.Load(ctx); err != nil {
			g.cfg.Log.Error("the keys that seal secrets cannot be read from the restored etcd: restart this gateway", "error", err)
		}
	})
}

// tellDrained sends the kick messages of drains to the players of instances.
func (g *Gateway) tellDrained(all []drains.Stopped) {
	of := make(map[fleet.InstanceID]drains.Stopped, len(all))
	for _, one := range all {
		of[one.Instance.Intent.ID] = one
	}
	queued := g.operate.Enqueue(func(ctx context.Context) {
		for _, p := range g.players.All(g.cfg.View.Snapshot()) {
			one, ok := of[p.Server]
			if !ok {
				continue
			}
			if err := g.operate.Notify(ctx, p, one.Drain.ID, one.Drain.KickMessage, one.Instance.Intent.Stop.At); err != nil {
				g.cfg.Log.Warn("a player was not told that the node is being drained", "player", p.ID, "instance", one.Instance.Intent.Name, "error", err)
			}
		}
	})
	if !queued {
		g.cfg.Log.Warn("players were not told that the node is being drained: too much other work waits", "instances", len(all))
	}
}

// identify derives the key of the cluster's gateways and opens the certificates of the API.
func (g *Gateway) identify() (err error) {
	if g.key, err = certificate.NewPeer(g.cfg.ClusterSecret); err != nil {
		return err
	}
	transport := newTransport()
	transport.TLSClientConfig = g.key.Client() // without trust.file, gateways call each other at the API's URL
	g.gateways = upstream.NewConnections(g.cfg.Peers, transport)
	g.peers = peer.NewClient(g.cfg.Peers, g.gateways)
	if !g.cfg.TLS.On() {
		return nil
	}
	if g.certificates, err = certificate.New(g.cfg.TLS, g.key, g.cfg.Log, g.cfg.Now); err != nil {
		return err
	}
	g.metrics.GaugesFunc("tls_certificate_expiry", "timestamp_seconds", "When the certificate of the API expires, in seconds since 1970.", []string{"host"}, func(tell func(float64, ...string)) {
		g.certificates.Expiry(func(host string, until time.Time) { tell(float64(until.Unix()), host) })
	})
	return nil
}

// ClientTLS returns the configuration for calls to this gateway by programs that have the cluster secret. They
// recognise it whatever names its certificate is for.
func (g *Gateway) ClientTLS() *tls.Config { return g.key.Client() }

// dialPatience limits how long connecting to another service may take.
const dialPatience = 5 * time.Second

func newTransport() *http.Transport {
	return &http.Transport{
		DialContext: (&net.Dialer{Timeout: dialPatience}).DialContext, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute,
	}
}

// Addr returns the listen address, "" before the gateway listens.
func (g *Gateway) Addr() string {
	addr, _ := g.addr.Load().(string)
	return addr
}

// Ready is closed when the gateway serves.
func (g *Gateway) Ready() <-chan struct{} { return g.ready }

// gathered returns the process's metrics, nil if the registry cannot be read.
func (g *Gateway) gathered() prometheus.Gatherer {
	all, _ := g.cfg.Metrics.(prometheus.Gatherer)
	return all
}

// openStreams are the streams of a gateway.
type openStreams struct {
	events   *events.Streams
	consoles *console.Streams
	shell    *commandapi.API
	logs     *logs.Logs
}

// Close ends all streams. Their clients reconnect to another replica.
func (o openStreams) Close() {
	o.events.Close()
	o.consoles.Close()
	o.shell.Close()
	o.logs.Close()
}

// wire creates the server with all routes.
func (g *Gateway) wire(meta cluster.Meta) (openStreams, error) {
	frame := server.New(server.Config{
		Auth: g.auth, Operations: g.operate, View: g.cfg.View, Log: g.cfg.Log, Metrics: g.metrics, Now: g.cfg.Now,
		Settings: g.settings, Secret: g.cfg.ClusterSecret,
		Replicas: func() int { return max(1, len(g.cfg.View.Snapshot().ServiceSessions(serviceName))) },
	})
	sources := sourceops.New(g.operate.Committer, g.ring)
	tickets := events.NewTickets(g.cfg.Store, 0, func(ctx context.Context, rev int64) error {
		_, err := g.cfg.View.WaitRev(ctx, rev)
		return err
	})
	records := logs.New(logs.Config{
		Records: g.cfg.Records, Service: serviceName, Replica: g.cfg.Replica, View: g.cfg.View, Auth: g.auth, Tickets: tickets,
		Agents: g.agents, Client: g.peers, PerUser: g.cfg.UserStreams, Log: g.cfg.Log, Metrics: g.metrics,
	})
	frame.Add(api.Routes(api.Config{
		Config: system.Config{
			Operations: g.operate, Schedulers: g.schedulers,
			Enforcers: upstream.NewEnforcers(g.health, g.cfg.Store, g.cfg.View, g.calls),
			Logs:      records, Settings: g.settings, Meta: meta, Past: g.past, Ready: g.waiting, End: g.end, Replica: g.cfg.Replica, Notices: g.notices,
			ClusterName: g.cfg.ClusterName, Version: g.cfg.Version, APIURL: g.cfg.APIURL, NoShares: g.cfg.NoShares, InsecureHTTP: g.insecureHTTP.Load(),
			ClockOffsets: g.heartbeats.ClockOffsets,
		},
		Auth: g.auth, Provider: g.provider, GroupRoles: g.groupRoles, Sources: sources, Templates: g.templates, Hasher: g.hasher, PinTime: g.cfg.pinTime, Players: g.players, Stale: g.heartbeats.Stale, WholeToken: g.wholeToken,
		Endings: g.endings, Shares: g.shares, WithinName: frame.WithinName, WithinPictures: frame.WithinPictures,
	})...)
	eventStreams := events.New(events.Config{
		Store: g.cfg.Store, Log: g.events, Tickets: tickets, ClusterID: meta.ClusterID, Caller: streamCaller,
		While:      g.whileListening,
		Consoles:   func(c *gin.Context) bool { who, _ := server.Identity(c); return who.Somewhere(auth.InstancesConsole) },
		MaxClients: g.cfg.MaxStreams, PerUser: g.cfg.UserStreams, Slog: g.cfg.Log, Metrics: g.metrics,
	})
	frame.Add(workload.New(workload.Config{
		Operations: g.operate, Auth: g.auth, Players: g.players, Tickets: tickets, HasCapacity: eventStreams.HasCapacity, Tell: g.relay.Publish, Now: g.cfg.Now,
	}).Routes()...)
	frame.Add(universe.New(universe.Config{
		Operations: g.operate, Templates: g.templates, Sources: sources, NodeID: g.cfg.NodeID, ClusterName: g.cfg.ClusterName,
		By: server.Actor, Shown: server.Shown, May: server.Allowed, Now: g.cfg.Now, Metrics: g.gathered(), MetricsPublic: g.cfg.MetricsPublic,
		Self: universe.Self{
			Version: g.cfg.Version, StartedAt: g.startedAt, Address: g.Addr, APIURL: g.cfg.APIURL, Debug: g.cfg.Log.Enabled(context.Background(), slog.LevelDebug),
		},
	}).Routes()...)
	streams := openStreams{
		events: eventStreams,
		consoles: console.New(console.Config{
			View: g.cfg.View, Auth: g.auth, Operations: g.operate, Tickets: tickets, Changes: g.changes,
			Origins: func() []string { return g.settings.Now().Origins },
			PerUser: g.cfg.UserStreams, Log: g.cfg.Log, Metrics: g.metrics,
		}),
		shell: commandapi.New(commandapi.Config{
			Commands: command.New(command.Config{
				Operations: g.operate, Sources: sources, Auth: g.auth, ClusterName: g.cfg.ClusterName, ClusterID: meta.ClusterID,
				Replica: g.cfg.Replica, End: g.end, EndOther: g.relay.RequestShutdown, Now: g.cfg.Now,
			}),
			Operations: g.operate, Auth: g.auth, Tickets: tickets, NodeID: fleet.NodeID(g.cfg.NodeID), Origins: func() []string { return g.settings.Now().Origins }, PerUser: g.cfg.UserStreams, Metrics: g.metrics,
		}),
		logs: records,
	}
	frame.Add(
		server.Post("/api/v1/events/ticket", server.Needs(auth.EventsStream), streams.events.Ticket).IssuesTickets().Among(),
		server.Get("/api/v1/events/stream", server.Ticketed, streams.events.Stream),
	)
	frame.Add(streams.consoles.Routes()...)
	frame.Add(streams.shell.Routes()...)
	frame.Add(streams.logs.Routes()...)
	pages, err := openapi.New(g.cfg.Version)
	if err != nil {
		return streams, err
	}
	board, err := openapi.NewDashboard()
	if err != nil {
		return streams, err
	}
	frame.Add(pages.Routes()...)
	frame.Add(board.Routes()...)
	frame.Add(notimplemented.Routes()...)
	g.frame = frame
	return streams, g.metrics.Err()
}
