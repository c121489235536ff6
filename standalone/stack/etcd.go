package stack

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store"
)

const (
	// maxTxnOps allows some hundred placements per transaction; etcd's default is 128.
	maxTxnOps = 1024
	// tickMs and electionMs shorten the start. A single member elects itself only after its
	// election timeout, and etcd's default of a second would dominate the start.
	tickMs, electionMs = 80, 400
	// retention is how far back event streams can resume.
	retention = "10m"
	// quotaBytes is the database size above which etcd refuses writes.
	quotaBytes = 4 << 30
	// defragmentMB is how much a defragmentation at the start must at least free.
	defragmentMB = 256
	// etcdReady limits the start of a healthy member with a large database.
	etcdReady = 60 * time.Second
)

// etcd is the embedded member. The services use it in process. Other programs of the same
// user, such as etcdctl, use a Unix socket in a private directory. With Options.EtcdListen,
// programs with a client certificate may use TCP. It has no peer listener and no JSON
// gateway.
type etcd struct {
	server *embed.Etcd
	client *store.Client
	close  func() error
	// Endpoint is the URL of the socket, and TLSEndpoint the URL of the TCP listener, ""
	// for none.
	Endpoint, TLSEndpoint string
}

// startEtcd runs a one-member etcd with its data in dir/etcd. Its errors name the address
// or directory that causes the problem.
func startEtcd(ctx context.Context, o Options, secret string) (*etcd, error) {
	cfg, err := etcdConfig(o, time.Now())
	if err != nil {
		return nil, err
	}
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, etcdError(o, err)
	}
	e := &etcd{server: server, Endpoint: "unix://" + cfg.ListenClientUrls[0].Path}
	if len(cfg.ListenClientUrls) > 1 {
		e.TLSEndpoint = reachable(cfg.ListenClientUrls[1])
	}
	timer := time.NewTimer(etcdReady)
	defer timer.Stop()
	select {
	case <-server.Server.ReadyNotify():
	case err := <-server.Err():
		server.Close()
		return nil, etcdError(o, err)
	case <-ctx.Done():
		server.Close()
		return nil, errs.WrapAs(errs.Canceled, "stack.etcd", ctx.Err())
	case <-timer.C:
		server.Close()
		return nil, errs.New(errs.Unavailable, "the embedded etcd in %s did not become ready within %v", cfg.Dir, etcdReady)
	}
	inner := v3client.New(server.Server)
	e.client = store.New(inner, store.Options{MaxOps: maxTxnOps, Log: o.Log, Secret: secret})
	e.close = inner.Close
	return e, nil
}

// etcdConfig also prepares the socket's directory, and the certificates of the TCP
// listener.
func etcdConfig(o Options, now time.Time) (*embed.Config, error) {
	dir, err := socketDir(o.DataDir)
	if err != nil {
		return nil, err
	}
	cfg := embed.NewConfig()
	cfg.Name = "standalone"
	cfg.Dir = filepath.Join(o.DataDir, "etcd")
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(etcdLog(o.Log))
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Path: filepath.Join(dir, socketName)}}
	if o.EtcdListen != "" {
		listen, err := freeAddress(o.EtcdListen, "-etcd-listen")
		if err != nil {
			return nil, err
		}
		if err := demandCertificates(cfg, filepath.Join(o.DataDir, accessDir), listen, now); err != nil {
			return nil, err
		}
		cfg.ListenClientUrls = append(cfg.ListenClientUrls, listen)
	}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	cfg.EnableGRPCGateway = false
	cfg.CORS = map[string]struct{}{cfg.ListenClientUrls[0].String(): {}} // no web page has this origin; an empty map allows all
	cfg.ListenPeerUrls = nil
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}} // a member needs a peer URL; nothing dials it
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModePeriodic, retention
	cfg.QuotaBackendBytes, cfg.BootstrapDefragThresholdMegabytes = quotaBytes, defragmentMB
	cfg.MaxTxnOps = maxTxnOps
	cfg.UnsafeNoFsync = o.UnsafeNoFsync
	cfg.TickMs, cfg.ElectionMs = tickMs, electionMs
	return cfg, nil
}

// reachable returns the URL with which a client on this host dials a listener.
func reachable(listen url.URL) string {
	if ip := net.ParseIP(listen.Hostname()); ip != nil && ip.IsUnspecified() {
		listen.Host = net.JoinHostPort("127.0.0.1", listen.Port())
	}
	return listen.String()
}

// stop stops the member. All written data is on disk.
func (e *etcd) stop() {
	_ = e.close()
	e.server.Server.HardStop() // a single member has no other to transfer leadership to
	e.server.Close()
}

// freeAddress checks that an address is free to listen on. It resolves port 0, so that the
// advertised URL has the real port.
func freeAddress(address, flag string) (url.URL, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return url.URL{}, listenError(address, flag, err)
	}
	defer l.Close()
	return url.URL{Scheme: "https", Host: l.Addr().String()}, nil
}

func listenError(address, flag string, err error) error {
	message := fmt.Sprintf("cannot listen on %s: %v; choose another address with %s", address, rootCause(err), flag)
	if strings.Contains(err.Error(), "address already in use") {
		message = fmt.Sprintf("the address %s is already in use by another program: stop it, or choose another with %s (port 0 picks a free one)", address, flag)
	}
	return &errs.Error{Op: "stack.listen", Kind: errs.Invalid, Message: message, Err: err}
}

func etcdError(o Options, err error) error {
	if strings.Contains(err.Error(), "address already in use") {
		return listenError(o.EtcdListen, "-etcd-listen", err)
	}
	return &errs.Error{Op: "stack.etcd", Kind: errs.Unavailable, Err: err, Message: fmt.Sprintf(
		"the embedded etcd could not start with its data in %s: %v", filepath.Join(o.DataDir, "etcd"), err)}
}
