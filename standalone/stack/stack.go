// Package stack runs all of Orrery in one process: an embedded etcd, the five services, and
// one node. The standalone program and tests use it.
//
// The services are the same packages that their separate programs run. They coordinate
// through etcd and talk HTTP to each other. A stack differs from a distributed installation
// in three ways: the services reach etcd in process, the control plane shares one view of
// it, and sessions of a predecessor are taken over at once, because the lock on the data
// directory proves that it is dead.
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
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/policy"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/nodeagent"
	"github.com/orreryhq/orrery/scheduler"
	"github.com/orreryhq/orrery/templatesvc"
	templates "github.com/orreryhq/orrery/templatesvc/client"
)

// Options configure the stack. The zero value of a field means the default of the flag of
// the same name.
type Options struct {
	// DataDir is the directory of all data; see dataDir.
	DataDir string
	// CacheMiB is the limit of the node's cache, see nodeagent.Config.
	CacheMiB int
	// FileVersionsMiB is the limit of kept previous contents of files, see nodeagent.Config.
	FileVersionsMiB int
	// BackupDir is the directory of backups of static instances, see nodeagent.Config.
	BackupDir string
	// SecretsDir and SecretsEnvPrefix restrict what references to secrets can read, see
	// nodeagent.Config.
	SecretsDir, SecretsEnvPrefix string
	// ProvidersDir is the directory of programs that provide placeholders, see
	// nodeagent.Config.
	ProvidersDir string
	// ConfigurationsDir is the directory that configuration sources read, see
	// templatesvc.Config.
	ConfigurationsDir string
	// ProgramsDir is the directory of programs that sources may run, as an absolute path,
	// see templatesvc.Config.
	ProgramsDir string
	// MetricsPublic serves the metrics without a token, see apigateway.Config.
	MetricsPublic bool
	// EgressProxy is the HTTP proxy for sources and the catalog, see templatesvc.Config.
	EgressProxy string
	// RunDir is the directory for files that are only needed while the machine is up, see
	// nodeagent.Config.
	RunDir string
	// Listen is the API's address. Port 0 chooses a free port.
	Listen string
	// Transport says how the API is served, see apigateway.Config.
	Transport apigateway.Transport
	// APIURL is the API's URL for instances and programs on this host. Empty means that of the listener.
	APIURL string
	// EtcdListen is an address where the embedded etcd serves clients with certificates.
	// Port 0 chooses a free port; empty disables the listener.
	EtcdListen string
	// NodesListen is the address at which further nodes join and use etcd. Templates are served to them at the
	// next port. Empty serves no other node; port 0 chooses free ports.
	NodesListen string
	// Node is the ID of the node.
	Node fleet.NodeID
	// MemoryMiB and CPU (hundredths of a core) are the node's capacity. 0 means the
	// machine's.
	MemoryMiB, CPU int
	// Room says how much of the capacity instances may reserve.
	Room fleet.NodeRoom
	// Policy is what instances may use, see nodeagent.Config.
	Policy policy.Policy
	// MaxCPUPercent is the load above which a node takes no new instance, see
	// scheduler.Config.
	MaxCPUPercent int
	// Lockout says when a user name is locked out. The zero value means the gateway's
	// defaults.
	Lockout apigateway.Lockout
	// Reset says how users receive the means to reset a forgotten password. The zero value
	// disables resets.
	Reset apigateway.PasswordReset
	// OIDC is a login provider, see apigateway.Config.
	OIDC apigateway.OIDC
	// AuditSink is an additional destination for audit entries, see apigateway.Config.
	AuditSink string
	// Keep decides at shutdown whether the instances continue, so that the next start
	// adopts them. After a failure they always continue. Nil stops them.
	Keep func(context.Context) bool
	// UnsafeNoFsync lets etcd answer before data is on disk. It is for tests only.
	UnsafeNoFsync bool
	// SessionTTL is the TTL of sessions. 0 means store.DefaultTTL.
	SessionTTL time.Duration
	// Guard is the command that runs a guard, see nodeagent.Config.
	Guard []string
	// Pane is the command that waits inside a terminal's session, see nodeagent.Config.
	Pane []string
	// InstanceUIDs, InstanceUser and RequireTenants are settings of users of instances; see
	// nodeagent.InstanceUIDs and nodeagent.Config.
	InstanceUIDs, InstanceUser string
	RequireTenants             bool
	Version                    string
	// Now returns the wall clock for all services, with a monotonic reading. Nil means
	// time.Now.
	Now func() time.Time
	Log *slog.Logger
	// Prepare is called with the absolute path of the locked data directory before anything
	// runs. Optional.
	Prepare func(dataDir string) error
	// OnReady is called once when everything is ready. Optional.
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
	acmeDir        = "acme"
	// stopBound limits how long the agent may take to stop its instances within their grace
	// periods.
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

// Run runs the stack until ctx ends. It then stops the components in reverse order: the API
// first, so that no new requests arrive, then the services that decide, then the node, etcd
// last. The user must fix errors of Kind Invalid, such as an address in use or an
// unwritable directory; the message says how.
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
	secret, err := data.secret(secretFile)
	if err != nil {
		return err
	}
	sealKey, err := data.secret(sealFile)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return listenError(o.Listen, "-listen", err)
	}
	defer listener.Close()
	if o.Transport.TLS.ACME.Cache == "" {
		o.Transport.TLS.ACME.Cache = data.join(acmeDir)
	}
	if o.APIURL, err = o.reachedAt(listener.Addr()); err != nil {
		return err
	}
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
	if err := data.checkSealKey(ctx, db.client, sealKey); err != nil {
		return err
	}
	if err := warnOfRoom(ctx, o, db); err != nil {
		return err
	}
	registry, err := telemetry.NewRegistry("standalone", o.Version)
	if err != nil {
		return err
	}
	s := &stack{o: o, data: data, db: db, meta: meta, secret: secret, sealKey: sealKey, listener: listener, registry: registry, records: records}
	if s.open, err = openToNodes(o, db); err != nil {
		return err
	}
	defer s.open.close()
	components, err := s.components(func() bool { return ctx.Err() != nil && (o.Keep == nil || !o.Keep(context.WithoutCancel(ctx))) })
	if err != nil {
		return err
	}
	defer data.removeReady() // in case the start failed in its last step
	return lifecycle.Run(ctx, o.Log, components...)
}

// warnOfRoom logs what will soon make etcd refuse writes.
func warnOfRoom(ctx context.Context, o Options, db *etcd) error {
	warnings, err := db.client.RoomWarnings(ctx, o.Now())
	for _, w := range warnings {
		o.Log.Warn(w)
	}
	return errs.Wrap("stack.warnOfRoom", err)
}

// stack holds the parts that the components share.
type stack struct {
	o        Options
	data     *dataDir
	db       *etcd
	meta     cluster.Meta
	secret   string
	sealKey  string
	listener net.Listener
	registry *prometheus.Registry
	// records are the latest log records of the process.
	records *telemetry.Ring
	// open is what other nodes need; nil if there are none.
	open *openStack

	view *view.View
	// peers authenticate the services to each other.
	peers     map[string]*trust.Peers
	templates *templatesvc.Service
	agent     *nodeagent.Agent
	gateway   *apigateway.Gateway
}

// components creates the services in the order in which they start. stopInstances reports
// whether the end stops the instances; otherwise they continue and the next start adopts
// them.
func (s *stack) components(stopInstances func() bool) ([]lifecycle.Component, error) {
	s.view = view.New(s.db.client, s.o.Log)
	s.peers = map[string]*trust.Peers{}
	for _, service := range pki.Services() {
		var err error
		if s.peers[service], err = s.open.peers(s, service); err != nil {
			return nil, err
		}
	}
	var err error
	if s.templates, err = templatesvc.New(s.templatesConfig()); err != nil {
		return nil, err
	}
	if s.agent, err = nodeagent.New(s.agentConfig()); err != nil {
		return nil, err
	}
	sched, err := scheduler.New(scheduler.Config{
		Store: s.db.client, View: s.view, Replica: replica, Takeover: true, SessionTTL: s.o.SessionTTL,
		Peers: s.peers[pki.Scheduler], Version: s.o.Version, Now: s.o.Now, Log: s.o.Log, Metrics: s.registry, MaxCPUPercent: s.o.MaxCPUPercent,
	})
	if err != nil {
		return nil, err
	}
	enf, err := enforcer.New(enforcer.Config{
		Store: s.db.client, View: s.view, Replica: replica, Takeover: true, SessionTTL: s.o.SessionTTL,
		Peers: s.peers[pki.Enforcer], Version: s.o.Version, Now: s.o.Now, Log: s.o.Log, Metrics: s.registry,
	})
	if err != nil {
		return nil, err
	}
	if s.gateway, err = apigateway.New(s.gatewayConfig()); err != nil {
		return nil, flagError(err)
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
		ClusterSecret: s.secret, SealKey: s.sealKey, Peers: s.peers[pki.Templates], Listen: s.open.templates(), Replica: replica, Takeover: true, SessionTTL: s.o.SessionTTL,
		KeepVersions: templatesvc.DefaultKeepVersions, ScrubInterval: templatesvc.DefaultScrubInterval, Version: s.o.Version, Now: s.o.Now, Log: s.o.Log, Metrics: s.registry,
	}
}

func (s *stack) agentConfig() nodeagent.Config {
	return nodeagent.Config{
		Store: s.db.client, Node: s.o.Node, DataDir: s.data.join("node"), RunDir: s.o.RunDir, Address: s.playerAddress(),
		MemoryMiB: s.o.MemoryMiB, CPU: s.o.CPU, CacheMiB: s.o.CacheMiB, FileVersionsMiB: s.o.FileVersionsMiB, BackupDir: s.o.BackupDir, SecretsDir: s.o.SecretsDir, SecretsEnvPrefix: s.o.SecretsEnvPrefix, ProvidersDir: s.o.ProvidersDir, Room: s.o.Room, Policy: s.o.Policy, APIURL: s.o.APIURL, ClusterSecret: s.secret, SealKey: s.sealKey, Peers: s.peers[pki.Agent],
		Templates: templates.New(templates.Config{
			Resolve: func() []string { return []string{s.templates.URL()} },
			Secret:  s.peers[pki.Agent].Token(), Log: s.o.Log,
			HTTP: &http.Client{Transport: s.peers[pki.Agent].Transport(&http.Transport{MaxIdleConnsPerHost: 16, DisableCompression: true}, pki.Identity{Service: pki.Templates})},
		}),
		SessionTTL: s.o.SessionTTL, StopInstancesOnExit: true, Guard: s.o.Guard, Pane: s.o.Pane,
		InstanceUIDs: nodeagent.InstanceUIDs(s.o.InstanceUIDs, s.o.InstanceUser), InstanceUser: s.o.InstanceUser, RequireTenants: s.o.RequireTenants,
		OrphanGrace: nodeagent.DefaultOrphanGrace, Version: s.o.Version, Now: s.o.Now, Log: s.o.Log, Metrics: s.registry,
	}
}

func (s *stack) gatewayConfig() apigateway.Config {
	return apigateway.Config{
		Store: s.db.client, View: s.view, Listener: s.listener, Transport: s.o.Transport, Meta: s.meta,
		ClusterSecret: s.secret, SealKey: s.sealKey, Peers: s.peers[pki.Gateway], PeerListen: "127.0.0.1:0", Nodes: s.open.nodes(), NodesStore: s.open.store(), AdminPasswordFile: s.data.join(passwordFile),
		Lockout: s.o.Lockout, Reset: s.o.Reset, OIDC: s.o.OIDC, AuditSink: s.o.AuditSink, Replica: replica, NodeID: string(s.o.Node), Takeover: true, SessionTTL: s.o.SessionTTL,
		Version: s.o.Version, Now: s.o.Now, Log: s.o.Log, Records: s.records, Metrics: s.registry, MetricsPublic: s.o.MetricsPublic,
	}
}

// playerAddress returns the address at which players reach the node: the API's host if it
// listens on a specific one, else loopback.
func (s *stack) playerAddress() string {
	if host, _, err := net.SplitHostPort(s.o.Listen); err == nil && host != "" {
		if ip := net.ParseIP(host); ip == nil || !ip.IsUnspecified() {
			return host
		}
	}
	return "127.0.0.1"
}

// awaitReady waits until templates are published, the node offers its runtimes and the API
// answers. It then writes ready.json and calls OnReady.
func (s *stack) awaitReady(ctx context.Context) error {
	for _, ready := range []<-chan struct{}{s.templates.Synced(), s.agent.Ready(), s.gateway.Ready()} {
		select {
		case <-ready:
		case <-ctx.Done():
			return errs.Wrap("stack.awaitReady", ctx.Err())
		}
	}
	// It uses no login, because after a password change each start would count as a failed
	// login.
	own := "http://" + s.listener.Addr().String()
	if s.o.Transport.TLS.On() {
		own = "https://" + s.listener.Addr().String()
	}
	if err := call(ctx, s.gateway.ClientTLS(), wire.Request{Method: http.MethodGet, URL: own + "/readyz"}, nil); err != nil {
		return errs.Wrap("stack.awaitReady", err)
	}
	r := Ready{API: s.o.APIURL, Etcd: s.db.Endpoint, Own: own, TLS: s.gateway.ClientTLS(), User: adminUser, PasswordFile: s.data.join(passwordFile), PID: os.Getpid()}
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

// unready deletes ready.json as the first step of the shutdown, because stopping the
// instances may take a while.
func (s *stack) unready(context.Context) error {
	s.data.removeReady()
	return nil
}
