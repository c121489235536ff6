package etcdproxy

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/orreryhq/orrery/libs/revocation"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/libs/wire"
)

// maxRequest is the largest request, in bytes: more than etcd accepts, so that etcd refuses it.
const maxRequest = 2 << 20

// Config configures a Proxy. All fields are required.
type Config struct {
	// Store is a client that store.Dial has returned. Calls use its connection.
	Store    *store.Client
	Snapshot func() *view.Snapshot
	// Peers has certificates.
	Peers *trust.Peers
	// Secret is the cluster secret. By it, a proxy knows the leases that others granted.
	Secret string
	Log    *slog.Logger
}

// Proxy serves etcd to nodes. It is safe for concurrent use.
type Proxy struct {
	cfg     Config
	etcd    upstream
	leases  leaseKeys
	limits  *limits
	revoked *revocation.List
	server  *grpc.Server
}

// upstream is etcd.
type upstream struct {
	kv    pb.KVClient
	watch pb.WatchClient
	lease pb.LeaseClient
}

// New returns a proxy. It refuses all calls until Serve has read which nodes are revoked.
func New(cfg Config) *Proxy {
	conn := cfg.Store.Conn()
	p := &Proxy{
		cfg: cfg, leases: newLeaseKeys(cfg.Secret), limits: newLimits(), revoked: revocation.New(cfg.Log),
		etcd: upstream{pb.NewKVClient(conn), pb.NewWatchClient(conn), pb.NewLeaseClient(conn)},
	}
	p.server = grpc.NewServer(grpc.MaxRecvMsgSize(maxRequest))
	pb.RegisterKVServer(p.server, transactions{p: p})
	pb.RegisterWatchServer(p.server, watches{p: p})
	pb.RegisterLeaseServer(p.server, leases{p: p})
	return p
}

// Register adds the calls of etcd's API to a mux.
func (p *Proxy) Register(mux *http.ServeMux) {
	for name := range p.server.GetServiceInfo() {
		mux.Handle("POST /"+name+"/", p.Admit(p.server))
	}
}

// drainTimeout bounds how long calls may take when the proxy ends. Watches do not end by themselves.
const drainTimeout = time.Second

// Serve serves nodes until ctx ends: with a handler to which Register has added calls. The error is Unavailable
// if the listener fails before that.
func (p *Proxy) Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	following, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	running.Go(func() { _ = p.revoked.Run(following, p.cfg.Store) }) // it ends with its context
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(p.cfg.Log.Handler(), slog.LevelDebug),
	}
	return wire.Serve(ctx, s, p.cfg.Peers.JoinListener(l), drainTimeout)
}

// rules returns what the caller may do.
func (p *Proxy) rules(ctx context.Context) rules {
	node := NodeOf(ctx)
	return rulesOf(node, viewFacts{store: p.cfg.Store, snapshot: p.cfg.Snapshot, node: node})
}

// leaderHeader is what clients send that want no answer of a member of etcd without a leader.
const leaderHeader = "hasleader"

// forwarded returns a context for a call of etcd with the headers of the caller that matter to etcd.
func forwarded(ctx context.Context) context.Context {
	if len(metadata.ValueFromIncomingContext(ctx, leaderHeader)) > 0 {
		return metadata.AppendToOutgoingContext(ctx, leaderHeader, "true")
	}
	return ctx
}
