package cluster

import (
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/standalone/stack"
)

// inProcess runs standalone's stack inside the test process.
type inProcess struct {
	ready  stack.Ready
	dir    string
	cancel context.CancelFunc
	done   chan error
	t      testing.TB
	once   sync.Once
}

func startStack(t testing.TB, o Options) Local {
	t.Helper()
	in := func(name string) string { return filepath.Join(o.DataDir, name) }
	proctest.AwaitUnlocked(t, in("lock"), in("etcd/member/wal/*.wal"), in("node/lock"))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	c := &inProcess{dir: o.DataDir, cancel: cancel, done: make(chan error, 1), t: t}
	ready := make(chan stack.Ready, 1)
	nodes := ""
	if o.Joinable {
		nodes = "127.0.0.1:0"
	}
	go func() {
		c.done <- stack.Run(ctx, stack.Options{
			DataDir: o.DataDir, Listen: "127.0.0.1:0", NodesListen: nodes,
			MemoryMiB: o.MemoryMiB, CPU: o.CPU, UnsafeNoFsync: true,
			MaxCPUPercent: 100, // all nodes of a test measure the same CPUs
			Keep:          func(context.Context) bool { return o.KeepInstances },
			Log:           slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})),
			OnReady:       func(r stack.Ready) { ready <- r },
		})
	}()
	select {
	case c.ready = <-ready:
	case err := <-c.done:
		cancel()
		t.Fatalf("the stack ended before it was ready: %v", err)
	case <-time.After(await.Patience):
		cancel()
		t.Fatal("the stack did not become ready")
	}
	return c
}

func (c *inProcess) API() string          { return c.ready.API }
func (c *inProcess) DataDir() string      { return c.dir }
func (c *inProcess) TemplateDir() string  { return filepath.Join(c.dir, "templates") }
func (c *inProcess) PasswordFile() string { return c.ready.PasswordFile }
func (c *inProcess) Etcd() string         { return c.ready.Etcd }
func (c *inProcess) SecretFile() string   { return filepath.Join(c.dir, "cluster-secret") }

func (c *inProcess) SealKeyFile() string { return filepath.Join(c.dir, "seal-key") }

// Trust returns no settings, because the services of a stack authenticate by the cluster secret.
func (c *inProcess) Trust(pki.Identity) []string { return nil }

func (c *inProcess) Agent(string) []string {
	return []string{"--etcd-endpoints", c.Etcd(), "--cluster-secret-file", c.SecretFile(), "--seal-key-file", c.SealKeyFile()}
}

// Metrics queries the gateway, because all parts of a stack share one registry.
func (c *inProcess) Metrics() string {
	return string(Login(c.t, c).Do(http.MethodGet, "/api/metrics", nil).OK(http.StatusOK).Body)
}

func (c *inProcess) Stop() {
	c.once.Do(func() {
		c.cancel()
		if err := <-c.done; err != nil {
			c.t.Errorf("the stack stopped badly: %v", err)
		}
	})
}
