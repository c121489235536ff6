// Package storetest starts a real etcd for tests: one member, or a cluster of
// several, embedded, in temporary directories, reached over loopback TCP like any other.
//
// There is no fake store in Orrery: whoever wants to test against the store
// starts this one (about 70 ms; a cluster of three about 400 ms).
package storetest

import (
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"

	"github.com/orreryhq/orrery/libs/store"
)

// Etcd is a running single-member etcd.
type Etcd struct {
	// Endpoint is its client URL; it stays the same across restarts.
	Endpoint string
	gate     *gate
	dir      string
	server   *embed.Etcd
	inner    *clientv3.Client
	// quota is how large its database may be, in bytes; 0: as large as etcd lets it by itself.
	quota int64
}

const readyTimeout = 30 * time.Second

// peerURL is where the only member would be reached by others.
const peerURL = "http://127.0.0.1:0"

// Start runs an etcd that ends with the test.
func Start(t testing.TB) *Etcd {
	t.Helper()
	e := &Etcd{dir: t.TempDir(), gate: newGate(t)}
	e.Endpoint = e.gate.url()
	e.start(t)
	t.Cleanup(func() { e.stop() })
	return e
}

// StartSmall is Start with a quota on the size of the database, in bytes.
func StartSmall(t testing.TB, quota int64) *Etcd {
	t.Helper()
	e := &Etcd{dir: t.TempDir(), gate: newGate(t), quota: quota}
	e.Endpoint = e.gate.url()
	e.start(t)
	t.Cleanup(func() { e.stop() })
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

// Free gives back what Fill took and disarms the alarm, as an operator does.
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

// Client connects over the network; the connection ends with the test.
func (e *Etcd) Client(t testing.TB) *store.Client {
	t.Helper()
	c, err := store.Dial([]string{e.Endpoint}, store.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("dialling the test etcd: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Raw is etcd's own client in process, to look behind the store's back.
func (e *Etcd) Raw() *clientv3.Client { return e.inner }

// Compact drops all history before the current revision.
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

// Clear deletes all keys, as a careless operator would; leases live on.
func (e *Etcd) Clear(t testing.TB) {
	t.Helper()
	if _, err := e.inner.Delete(t.Context(), "", clientv3.WithPrefix()); err != nil {
		t.Fatalf("deleting all keys: %v", err)
	}
}

// RevokeAll ends all leases, as if nobody had been heard of for long; their keys go.
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

// Stop halts etcd as a crash would; Restart brings it back with its data.
func (e *Etcd) Stop() { e.stop() }

// Restart starts a stopped etcd again on the same endpoint and data.
func (e *Etcd) Restart(t testing.TB) {
	t.Helper()
	e.start(t)
}

// Empty starts a stopped etcd again on the same endpoint, without its data: what
// clients see when somebody lost it all and began anew.
func (e *Etcd) Empty(t testing.TB) {
	t.Helper()
	e.dir = t.TempDir()
	e.start(t)
}

// config is what all members have in common.
func config(dir string) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.UnsafeNoFsync = true // a test's data need not outlive a power cut
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	return cfg
}

func (e *Etcd) start(t testing.TB) {
	t.Helper()
	e.server = e.serve(t)
	e.inner = v3client.New(e.server.Server)
	e.gate.open(e.server.Clients[0].Addr().String())
}

// serve starts a server on the data that no client reaches yet.
func (e *Etcd) serve(t testing.TB) *embed.Etcd {
	t.Helper()
	cfg := config(e.dir)
	cfg.QuotaBackendBytes = e.quota
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = urls("http://127.0.0.1:0"), urls(e.Endpoint)
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = urls(peerURL), urls(peerURL)
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
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

func (e *Etcd) stop() {
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
		panic(err) // only literals and our own endpoint come here
	}
	return []url.URL{*u}
}
