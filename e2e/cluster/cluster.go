// Package cluster starts a whole Orrery for end-to-end tests and benchmarks, and talks to
// it over HTTP as any client would.
//
// Two runners share one interface. The in-process runner runs standalone's stack inside the
// test, also under the race detector. The other runner builds the programs and runs etcd
// and the five services as separate processes. ORRERY_E2E selects the runner: unset or
// "processes".
package cluster

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster/proxy"
	"github.com/orreryhq/orrery/e2e/cluster/site"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/pki"
)

// Options configure a cluster. The zero value is one node with the machine's capacity.
type Options struct {
	// DataDir is kept between starts. Empty means a new temporary directory.
	DataDir string
	// MemoryMiB and CPU are the node's capacity.
	MemoryMiB, CPU int
	// KeepInstances leaves instances running when the cluster stops.
	KeepInstances bool
	// Joinable lets hosts join with a token also if all services run in one process.
	Joinable bool
	// Plain starts separate processes without certificates; see Certify.
	Plain bool
	// Wrap is site.Options.Wrap, for separate processes.
	Wrap func(p site.Pair, dial proxy.Dial) proxy.Dial
}

// Cluster is a running Orrery.
type Cluster interface {
	// API returns the gateway's base URL.
	API() string
	// DataDir returns the directory of all data.
	DataDir() string
	// TemplateDir returns the directory from which templates are published.
	TemplateDir() string
	// PasswordFile returns the file with the admin's password.
	PasswordFile() string
	// Stop stops the cluster gracefully and waits.
	Stop()
}

// Local is a cluster on this machine. Nodes can be added to it.
type Local interface {
	Cluster
	// Etcd returns etcd's addresses, separated by commas.
	Etcd() string
	// SecretFile returns the file with the cluster's secret.
	SecretFile() string
	// SealKeyFile returns the file with the key that wraps the keys which seal secrets.
	SealKeyFile() string
	// Trust returns the settings by which a further service is authenticated, besides SecretFile and SealKeyFile.
	Trust(who pki.Identity) []string
	// Agent returns the settings by which the agent of a further node takes part.
	Agent(id string) []string
	// Metrics returns the concatenated metrics of all programs.
	Metrics() string
}

// Start runs a cluster until the test ends. ORRERY_E2E selects the runner.
func Start(t testing.TB, o Options) Local {
	t.Helper()
	if o.DataDir == "" {
		o.DataDir = t.TempDir()
	}
	var c Local
	switch runner := os.Getenv("ORRERY_E2E"); runner {
	case "", "stack":
		c = startStack(t, o)
	case "processes":
		c = startProcesses(t, o)
	default:
		t.Fatalf("ORRERY_E2E=%q: must be stack or processes", runner)
	}
	t.Cleanup(c.Stop)
	return c
}

// Bounded returns a context that ends with the test, and at most await.Patience from now.
func Bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	t.Cleanup(cancel)
	return ctx
}

// WriteTemplate writes files into a template named "<group>/<name>".
func WriteTemplate(t testing.TB, c Cluster, template string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(c.TemplateDir(), filepath.FromSlash(template), filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
