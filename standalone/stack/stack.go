// Package stack runs all of Orrery in one process: embedded etcd, the five
// services, one node. It is what the standalone program is made of and what tests
// start.
//
// Nothing is short-circuited: the services are the same packages their own
// programs run, they meet in etcd and speak HTTP to each other. Only three things
// differ from a distributed set-up: etcd is reached in process, the control
// plane's services share one view of it, and the lock on the data directory proves
// that a predecessor is dead, so its sessions are taken over at once.
package stack

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/apigateway"
	"github.com/orreryhq/orrery/enforcer"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/nodeagent"
	"github.com/orreryhq/orrery/scheduler"
	"github.com/orreryhq/orrery/templatesvc"
	templates "github.com/orreryhq/orrery/templatesvc/client"
)

// Options say what to run. The zero value of a field means the default of the
// flag of the same name.
type Options struct {
	// DataDir holds everything; see dataDir.
	DataDir string
	// CacheMiB is the bound of the node's cache, see nodeagent.Config.
	CacheMiB int
	// SecretsDir and SecretsEnvPrefix bound what references of secrets lead to, see nodeagent.Config.
	SecretsDir, SecretsEnvPrefix string
	// ProvidersDir is the directory of programs that give placeholders, see nodeagent.Config.
	ProvidersDir string
	// ConfigurationsDir is what sources of configurations read, see templatesvc.Config.
	ConfigurationsDir string
	// ProgramsDir is the directory of programs that sources may name, by absolute path, see
	// templatesvc.Config.
	ProgramsDir string
	// MetricsPublic shows the metrics without a token, see apigateway.Config.
	MetricsPublic bool
	// EgressProxy is the HTTP proxy of sources and the catalog, see templatesvc.Config.
	EgressProxy string
	// RunDir is for what runs need only while the machine is up, see nodeagent.Config.
	RunDir string
	// Listen is the API's address. Port 0 picks a free one.
	Listen string
	// EtcdListen is an address where the embedded etcd serves clients with certificates. Port 0
	// picks a free one; empty opens no such listener.
	EtcdListen string
	// Node is the id of the one node.
	Node fleet.NodeID
	// MemoryMiB and CPU (hundredths of a core) are the node's capacity. 0 means what the machine has.
	MemoryMiB, CPU int
	// Room says how much of that instances may reserve.
	Room fleet.NodeRoom
	// MaxCPUPercent is when a node is too busy to take more, see scheduler.Config.
	MaxCPUPercent int
	// Lockout says when a user name is locked out; the zero value has the gateway's defaults.
	Lockout apigateway.Lockout
	// Reset says how users are told of what resets a forgotten password; the zero value resets none.
	Reset apigateway.PasswordReset
	// AuditSink is where entries of the audit are also written, see apigateway.Config.
	AuditSink string
	// Keep decides, when the stack is asked to end, whether the instances run on and the
	// next start adopts them. They run on in any case when the stack ends because something
	// failed. Nil stops them.
	Keep func(context.Context) bool
	// UnsafeNoFsync lets etcd answer before data is on disk: for tests only.
	UnsafeNoFsync bool
	// SessionTTL is how long a session outlives its last keep-alive. 0 means store.DefaultTTL.
	SessionTTL time.Duration
	// Guard is the command that runs a guard, see nodeagent.Config.
	Guard []string
	// Pane is the command that waits inside a terminal's session, see nodeagent.Config.
	Pane []string
	// Confine is the command that confines what it becomes, see nodeagent.Config.
	Confine []string
	Version string
	// Now reads the wall clock of all services, with a monotonic reading. Nil means time.Now.
	Now func() time.Time
	Log *slog.Logger
	// Prepare is called once the data directory is ours and before anything runs, with its absolute path. Optional.
	Prepare func(dataDir string) error
	// OnReady is called once when everything serves. Optional.
	OnReady func(Ready)
}

// Defaults of Options.
const (
	DefaultDataDir = "./data"
	DefaultListen  = "127.0.0.1:8080"
	DefaultNode    = "node-1"
	replica        = "standalone"
	adminUser      = "admin"
	passwordFile   = "admin-password"
	// stopBound is how long the agent may take to stop its instances by their own graces.
	stopBound = 10 * time.Minute
)

func (o Options) withDefaults() Options {
	if o.DataDir == "" {
		o.DataDir = DefaultDataDir
	}
	if o.Listen == "" {
		o.Listen = DefaultListen
	}
	if o.Node == "" {
		o.Node = DefaultNode
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Run runs the stack until ctx ends, then stops it in reverse order: the API
// first, so that nobody asks for more; then what decides; then the node; etcd
// last. Errors of Kind Invalid are the user's to mend (an address in use, a
// directory that cannot be written) and say how.
func Run(ctx context.Context, o Options) error {
	o = o.withDefaults()
	records := telemetry.NewRing("standalone", telemetry.DefaultKept)
	o.Log = slog.New(records.Handler(o.Log.Handler()))
	if err := o.Node.Validate(); err != nil {
		return errs.Field("-node", "%s", errs.MessageOf(err))
	}
	data, err := openDataDir(o.DataDir)
	if err != nil {
		return err
	}
	defer data.close()
	o.DataDir = data.path
	if o.Prepare != nil {
		if err := o.Prepare(data.path); err != nil {
			return err
		}
	}
	secret, err := data.clusterSecret()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return listenError(o.Listen, "-listen", err)
	}
	defer listener.Close()
	db, err := startEtcd(ctx, o, secret)
	if err != nil {
		return err
	}
	defer db.stop()
	meta, err := db.client.Join(ctx, o.Now())
	switch {
	case errs.FieldOf(err) == "cluster.secret":
		return errs.New(errs.Invalid, "the file %s does not hold the secret of the cluster in %s: bring back the file that belongs to it", data.join(secretFile), data.join("etcd"))
	case err != nil:
		return err
	}
	if err := warnOfRoom(ctx, o, db); err != nil {
		return err
	}
	registry, err := telemetry.NewRegistry("standalone", o.Version)
	if err != nil {
		return err
	}
	s := &stack{o: o, data: data, db: db, meta: meta, secret: secret, listener: listener, registry: registry, records: records}
	components, err := s.components(func() bool { return ctx.Err() != nil && (o.Keep == nil || !o.Keep(context.WithoutCancel(ctx))) })
	if err != nil {
		return err
	}
	defer data.removeReady() // for a start that was abandoned in its last step
	return lifecycle.Run(ctx, o.Log, components...)
}

// warnOfRoom logs what will make etcd refuse writes.
func warnOfRoom(ctx context.Context, o Options, db *etcd) error {
	warnings, err := db.client.RoomWarnings(ctx, o.Now())
	for _, w := range warnings {
		o.Log.Warn(w)
	}
	return errs.Wrap("stack.warnOfRoom", err)
}

// stack holds what the components are made from.
type stack struct {
	o        Options
	data     *dataDir
	db       *etcd
	meta     fleet.Meta
	secret   string
	listener net.Listener
	registry *prometheus.Registry
	// records are the last ones of the whole process' log.
	records *telemetry.Ring

	view      *view.View
	templates *templatesvc.Service
	agent     *nodeagent.Agent
	gateway   *apigateway.Gateway
}

func (s *stack) apiURL() string { return "http://" + s.listener.Addr().String() }

// components wires the services by hand, in the order they start.
// stopInstances reports whether the end stops the instances; otherwise they run on and
// the next start adopts them.
func (s *stack) components(stopInstances func() bool) ([]lifecycle.Component, error) {
	s.view = view.New(s.db.client, s.o.Log)
	var err error
	if s.templates, err = templatesvc.New(s.templatesConfig()); err != nil {
		return nil, err
	}
	if s.agent, err = nodeagent.New(s.agentConfig()); err != nil {
		return nil, err
	}
	sched, err := scheduler.New(scheduler.Config{
		Store: s.db.client, View: s.view, Replica: replica, Takeover: true, SessionTTL: s.o.SessionTTL,
		ClusterSecret: s.secret, Version: s.o.Version, Now: s.o.Now, Log: s.o.Log, Metrics: s.registry, MaxCPUPercent: s.o.MaxCPUPercent,
	})
	if err != nil {
		return nil, err
	}
	enf, err := enforcer.New(enforcer.Config{
		Store: s.db.client, View: s.view, Replica: replica, Takeover: true, SessionTTL: s.o.SessionTTL,
		Version: s.o.Version, Now: s.o.Now, Log: s.o.Log, Metrics: s.registry,
	})
	if err != nil {
		return nil, err
	}
	if s.gateway, err = apigateway.New(s.gatewayConfig()); err != nil {
		return nil, err
	}
	return []lifecycle.Component{
		telemetry.NewAdmin(telemetry.AdminOptions{Gatherer: s.registry, Secret: s.secret, Log: s.o.Log}).Component(),
		{Name: "view", Run: s.view.Run},
		{Name: "templatesvc", Run: s.templates.Run},
		{Name: "scheduler", Run: sched.Run},
		{Name: "nodeagent", Run: s.agent.Run, StopTimeout: stopBound, Stop: s.agent.Stop(stopInstances)},
		{Name: "enforcer", Run: enf.Run},
		{Name: "apigateway", Run: s.gateway.Run},
		{Name: "ready", Start: s.awaitReady, Stop: s.unready},
	}, nil
}

func (s *stack) templatesConfig() templatesvc.Config {
	return templatesvc.Config{
		Store: s.db.client, Dir: s.data.join("templates"), BlobDir: s.data.join("blobs"), ConfigurationsDir: s.o.ConfigurationsDir, ProgramsDir: s.o.ProgramsDir, EgressProxy: s.o.EgressProxy,
		ClusterSecret: s.secret, Replica: replica, Takeover: true, SessionTTL: s.o.SessionTTL,
		KeepVersions: templatesvc.DefaultKeepVersions, ScrubInterval: templatesvc.DefaultScrubInterval, Version: s.o.Version, Now: s.o.Now, Log: s.o.Log, Metrics: s.registry,
	}
}

func (s *stack) agentConfig() nodeagent.Config {
	return nodeagent.Config{
		Store: s.db.client, Node: s.o.Node, DataDir: s.data.join("node"), RunDir: s.o.RunDir, Address: s.playerAddress(),
		MemoryMiB: s.o.MemoryMiB, CPU: s.o.CPU, CacheMiB: s.o.CacheMiB, SecretsDir: s.o.SecretsDir, SecretsEnvPrefix: s.o.SecretsEnvPrefix, ProvidersDir: s.o.ProvidersDir, Room: s.o.Room, APIURL: s.apiURL(), ClusterSecret: s.secret,
		Templates: templates.New(templates.Config{
			Resolve: func() []string { return []string{s.templates.URL()} },
			Secret:  s.secret, Log: s.o.Log,
		}),
		SessionTTL: s.o.SessionTTL, StopInstancesOnExit: true, Guard: s.o.Guard, Pane: s.o.Pane, Confine: s.o.Confine,
		OrphanGrace: nodeagent.DefaultOrphanGrace, Version: s.o.Version, Now: s.o.Now, Log: s.o.Log, Metrics: s.registry,
	}
}

func (s *stack) gatewayConfig() apigateway.Config {
	return apigateway.Config{
		Store: s.db.client, View: s.view, Listener: s.listener, Meta: s.meta,
		ClusterSecret: s.secret, AdminPasswordFile: s.data.join(passwordFile),
		Lockout: s.o.Lockout, Reset: s.o.Reset, AuditSink: s.o.AuditSink, Replica: replica, NodeID: string(s.o.Node), Takeover: true, SessionTTL: s.o.SessionTTL,
		Version: s.o.Version, Now: s.o.Now, Log: s.o.Log, Records: s.records, Metrics: s.registry, MetricsPublic: s.o.MetricsPublic,
	}
}

// playerAddress is where players reach the node: the API's host when it is bound
// to one, else loopback.
func (s *stack) playerAddress() string {
	if host, _, err := net.SplitHostPort(s.o.Listen); err == nil && host != "" {
		if ip := net.ParseIP(host); ip == nil || !ip.IsUnspecified() {
			return host
		}
	}
	return "127.0.0.1"
}

// awaitReady waits until templates are published, the node offers its runtimes
// and the API answers, then tells the world.
func (s *stack) awaitReady(ctx context.Context) error {
	for _, ready := range []<-chan struct{}{s.templates.Synced(), s.agent.Ready(), s.gateway.Ready()} {
		select {
		case <-ready:
		case <-ctx.Done():
			return errs.Wrap("stack.awaitReady", ctx.Err())
		}
	}
	// No login proves it: of a password that was changed each start would count as a wrong one.
	if err := call(ctx, wire.Request{Method: http.MethodGet, URL: s.apiURL() + "/readyz"}, nil); err != nil {
		return errs.Wrap("stack.awaitReady", err)
	}
	r := Ready{API: s.apiURL(), Etcd: s.db.Endpoint, User: adminUser, PasswordFile: s.data.join(passwordFile), PID: os.Getpid()}
	if s.db.TLSEndpoint != "" {
		r.EtcdTLS, r.EtcdCertificates = s.db.TLSEndpoint, s.data.join(accessDir)
	}
	if err := s.data.writeReady(r); err != nil {
		return err
	}
	if s.o.OnReady != nil {
		s.o.OnReady(r)
	}
	return nil
}

// unready is the first step of the end: whoever waits for ready.json must not
// find it while instances take their time to stop.
func (s *stack) unready(context.Context) error {
	s.data.removeReady()
	return nil
}
