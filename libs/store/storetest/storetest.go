// Package storetest starts a real embedded etcd for tests: one member or a cluster, in temporary
// directories, reached over loopback TCP.
//
// Orrery has no fake store. Tests use this one (it starts in about 70 ms; a cluster of three in
// about 400 ms).
package storetest

import (
	"errors"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"

	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/libs/store"
)

// Etcd is a running single-member etcd.
type Etcd struct {
	// Endpoint is the client URL. It stays the same across restarts.
	Endpoint string
	gate     *gate
	dir      string
	server   *embed.Etcd
	inner    *clientv3.Client
	// quota is the maximum size of the database in bytes. 0 means etcd's default.
	quota int64
	// tls are the files of an etcd with certificates. The zero value serves plain HTTP.
	tls TLS
}

const readyTimeout = 30 * time.Second

// peerURL is the peer URL of a single member.
const peerURL = "http://127.0.0.1:0"

// Start runs an etcd until the test ends.
func Start(t testing.TB) *Etcd {
	t.Helper()
	return StartSmall(t, 0)
}

// StartSmall is Start with a quota on the size of the database, in bytes. 0 means etcd's default.
func StartSmall(t testing.TB, quota int64) *Etcd {
	t.Helper()
	return start(t, &Etcd{quota: quota})
}

func start(t testing.TB, e *Etcd) *Etcd {
	t.Helper()
	e.dir, e.gate = t.TempDir(), newGate(t)
	e.Endpoint = e.tls.scheme() + strings.TrimPrefix(e.gate.url(), "http")
	e.Restart(t)
	t.Cleanup(e.Stop)
	return e
}

// Fill writes until the database is full and etcd raises its alarm.
func (e *Etcd) Fill(t testing.TB) {
	t.Helper()
	for {
		_, err := e.inner.Put(t.Context(), "fill", strings.Repeat("x", 1<<18))
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return
		}
		if err != nil {
			t.Fatalf("filling etcd: %v", err)
		}
	}
}

// Free removes what Fill wrote and disarms the alarm, like an operator.
func (e *Etcd) Free(t testing.TB) {
	t.Helper()
	if _, err := e.inner.Delete(t.Context(), "fill"); err != nil {
		t.Fatalf("deleting: %v", err)
	}
	e.Compact(t)
	if err := e.server.Server.Backend().Defrag(); err != nil {
		t.Fatalf("defragmenting: %v", err)
	}
	if _, err := e.inner.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatalf("disarming: %v", err)
	}
}

// New starts an etcd and returns a client connected to it over the network.
func New(t testing.TB) *store.Client {
	t.Helper()
	return Start(t).Client(t)
}

// Client connects over the network until the test ends.
func (e *Etcd) Client(t testing.TB) *store.Client {
	t.Helper()
	return dial(t, e.Endpoint)
}

func dial(t testing.TB, endpoints ...string) *store.Client {
	t.Helper()
	c, err := store.Dial(endpoints, store.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("dialling the test etcd: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Raw returns etcd's own in-process client, which bypasses the store.
func (e *Etcd) Raw() *clientv3.Client { return e.inner }

// Compact removes the history before the current revision.
func (e *Etcd) Compact(t testing.TB) {
	t.Helper()
	resp, err := e.inner.Get(t.Context(), "x")
	if err != nil {
		t.Fatalf("reading the revision: %v", err)
	}
	if _, err := e.inner.Compact(t.Context(), resp.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatalf("compacting: %v", err)
	}
}

// Clear deletes all keys. Leases stay.
func (e *Etcd) Clear(t testing.TB) {
	t.Helper()
	if _, err := e.inner.Delete(t.Context(), "", clientv3.WithPrefix()); err != nil {
		t.Fatalf("deleting all keys: %v", err)
	}
}

// RevokeAll revokes all leases, as if they had expired. Their keys are removed.
func (e *Etcd) RevokeAll(t testing.TB) {
	t.Helper()
	all, err := e.inner.Leases(t.Context())
	if err != nil {
		t.Fatalf("listing leases: %v", err)
	}
	for _, l := range all.Leases {
		if _, err := e.inner.Revoke(t.Context(), l.ID); err != nil {
			t.Fatalf("revoking a lease: %v", err)
		}
	}
}

// Empty starts a stopped etcd again with the same endpoint but without data, as if an operator had
// lost the data and started over.
func (e *Etcd) Empty(t testing.TB) {
	t.Helper()
	e.dir = t.TempDir()
	e.Restart(t)
}

// config returns the configuration common to all members.
func config(dir string) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.UnsafeNoFsync = true // a test's data need not outlive a power cut
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	return cfg
}

// walFiles are etcd's write-ahead logs below its directory. It ends the whole process if one is
// locked.
const walFiles = "member/wal/*.wal"

// Restart starts a stopped etcd again with the same endpoint and data.
func (e *Etcd) Restart(t testing.TB) {
	t.Helper()
	e.server = e.serve(t)
	e.inner = v3client.New(e.server.Server)
	e.gate.open(e.server.Clients[0].Addr().String())
}

// serve starts a server on the data. Clients cannot reach it yet.
func (e *Etcd) serve(t testing.TB) *embed.Etcd {
	t.Helper()
	cfg := config(e.dir)
	cfg.QuotaBackendBytes = e.quota
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = urls(e.tls.scheme()+"://127.0.0.1:0"), urls(e.Endpoint)
	cfg.ClientTLSInfo = e.tls.info()
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = urls(peerURL), urls(peerURL)
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	proctest.AwaitUnlocked(t, filepath.Join(e.dir, walFiles))
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatalf("starting etcd: %v", err)
	}
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(readyTimeout):
		server.Close()
		t.Fatalf("etcd was not ready within %v", readyTimeout)
	}
	return server
}

// Stop stops etcd like a crash. Restart starts it again with its data.
func (e *Etcd) Stop() {
	if e.server == nil {
		return
	}
	e.gate.close()
	_ = e.inner.Close()
	e.server.Server.HardStop()
	e.server.Close()
	e.server = nil
}

func urls(s string) []url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err) // only called with literals and our own endpoints
	}
	return []url.URL{*u}
}
