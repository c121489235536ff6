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
	// maxTxnOps lets one transaction carry some hundred placements; etcd's own default is 128.
	maxTxnOps = 1024
	// One member elects itself, but only after its election timeout: with etcd's
	// own of a second that would be most of the start.
	tickMs, electionMs = 80, 400
	// retention is how much history resuming event streams can go back to.
	retention = "1h"
	// etcdReady bounds the start of a healthy member with a large database.
	etcdReady = 60 * time.Second
)

// etcd is the embedded member. The services speak to it in process; its client
// listener is there for etcdctl.
type etcd struct {
	server *embed.Etcd
	client *store.Client
	close  func() error
	// Endpoint is the URL of the client listener.
	Endpoint string
}

// startEtcd runs a one-member etcd with its data in dir/etcd. Its error says
// which address or directory is to blame.
func startEtcd(ctx context.Context, o Options) (*etcd, error) {
	listen, err := freeAddress(o.EtcdListen, "-etcd-listen")
	if err != nil {
		return nil, err
	}
	cfg := embed.NewConfig()
	cfg.Name = "standalone"
	cfg.Dir = filepath.Join(o.DataDir, "etcd")
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(etcdLog(o.Log))
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{listen}, []url.URL{listen}
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:0"} // one member: nobody ever dials it
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModePeriodic, retention
	cfg.MaxTxnOps = maxTxnOps
	cfg.UnsafeNoFsync = o.UnsafeNoFsync
	cfg.TickMs, cfg.ElectionMs = tickMs, electionMs
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, etcdError(o, err)
	}
	e := &etcd{server: server}
	timer := time.NewTimer(etcdReady)
	defer timer.Stop()
	select {
	case <-server.Server.ReadyNotify():
	case err := <-server.Err():
		server.Close()
		return nil, etcdError(o, err)
	case <-ctx.Done():
		server.Close()
		return nil, errs.As(errs.Canceled, "stack.etcd", ctx.Err())
	case <-timer.C:
		server.Close()
		return nil, errs.New(errs.Unavailable, "the embedded etcd in %s did not become ready within %v", cfg.Dir, etcdReady)
	}
	inner := v3client.New(server.Server)
	e.client = store.New(inner, store.Options{MaxOps: maxTxnOps, Log: o.Log})
	e.close = inner.Close
	e.Endpoint = "http://" + server.Clients[0].Addr().String()
	return e, nil
}

// stop ends the member; everything written stays on disk.
func (e *etcd) stop() {
	_ = e.close()
	e.server.Server.HardStop() // one member: there is nobody to hand leadership to
	e.server.Close()
}

// freeAddress checks that an address can be listened on and says so if not. Port
// 0 is resolved here, so that the advertised URL is the real one.
func freeAddress(address, flag string) (url.URL, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return url.URL{}, listenError(address, flag, err)
	}
	defer l.Close()
	return url.URL{Scheme: "http", Host: l.Addr().String()}, nil
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
