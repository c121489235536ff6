package cluster

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster/site"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/pki"
)

// Gateway is an additional gateway of a cluster, always in a separate process.
type Gateway struct {
	*site.Process
	Cluster // API returns this gateway's URL instead

	name string
	t    testing.TB
	url  atomic.Value // string; a proxy reads it while Restart sets it
}

// API returns this gateway's base URL, or "" before its first start.
func (g *Gateway) API() string {
	url, _ := g.url.Load().(string)
	return url
}

// Stop stops the gateway and leaves the cluster running.
func (g *Gateway) Stop() { g.end() }

// AddGateway runs an additional gateway until the test ends, and waits until it is ready. flags are added to its own.
func AddGateway(t testing.TB, c Local, admin *Client, name string, flags ...string) *Gateway {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	flags = append(flags, c.Trust(pki.Identity{Service: pki.Gateway, Name: name})...)
	g := &Gateway{Cluster: c, name: name, t: t, Process: site.NewProcess(name, Program(t, "./apigateway/cmd/apigateway"), path+".log", append(flags,
		"--replica", name, "--listen", "127.0.0.1:0", "--etcd-endpoints", c.Etcd(), "--cluster-secret-file", c.SecretFile(), "--seal-key-file", c.SealKeyFile(),
		"--admin-password-file", path+".password", "--limits-anonymous", "0", "--limits-logins", "0", "--log-level", "debug", "--session-ttl", "2s")...)}
	t.Cleanup(g.end)
	g.Restart(admin)
	return g
}

// Restart starts the stopped gateway, and waits until it is ready at the address in the
// list of members.
func (g *Gateway) Restart(admin *Client) {
	g.t.Helper()
	before := g.API()
	if err := g.Start(); err != nil {
		g.t.Fatal(err)
	}
	await.That(g.t, g.name+" ready", func() string {
		if !g.Running() {
			g.t.Fatalf("%s ended: %v", g.name, g.Ended())
		}
		var all struct {
			Members []struct{ NodeID, RestAddr string }
		}
		admin.Do("GET", "/api/v1/cluster/members", nil).OK(200, &all)
		for _, m := range all.Members {
			if strings.HasSuffix(m.NodeID, "/"+g.name) && m.RestAddr != before {
				g.url.Store(m.RestAddr)
			}
		}
		if g.API() == before {
			return "it is no member"
		}
		r, err := Anonymous(g.t, g).Try(g.t.Context(), "GET", "/readyz", nil)
		if err != nil {
			return err.Error()
		}
		return await.Unless(r.Status == 200, "%s", r.Body)
	})
}

// Through returns the same user's client for another gateway.
func (c *Client) Through(g Cluster) *Client {
	other := *c
	other.api = g.API()
	return &other
}

// end stops the gateway, and prints its log if the test failed.
func (g *Gateway) end() {
	if err := g.Process.Stop(); err != nil {
		g.t.Error(err)
	}
	if g.t.Failed() {
		log, _ := g.Log()
		g.t.Logf("---- %s\n%s", g.name, log)
	}
}
