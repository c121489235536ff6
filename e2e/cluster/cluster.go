// Package cluster starts a whole Orrery for end-to-end tests and benchmarks and
// speaks to it as a stranger would: over HTTP.
//
// There are two runners behind one interface. The in-process one runs
// standalone's stack inside the test, race detector and all. The other builds the
// programs and runs six separate processes: etcd and the five services. Which one
// Start picks is said by ORRERY_E2E (unset, or "processes").
package cluster

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
)

// Options say what to start. The zero value is one node with what the machine has.
type Options struct {
	// DataDir is kept between starts; empty means a fresh temporary directory.
	DataDir string
	// MemoryMiB and CPU are the node's capacity.
	MemoryMiB, CPU int
	// KeepInstances leaves instances running when the cluster stops.
	KeepInstances bool
}

// Cluster is a running Orrery.
type Cluster interface {
	// API is the gateway's base URL.
	API() string
	// DataDir is where everything lies.
	DataDir() string
	// TemplateDir is where templates are dropped in.
	TemplateDir() string
	// PasswordFile holds the admin's password.
	PasswordFile() string
	// Stop ends it gracefully and waits.
	Stop()
}

// Local is a cluster on this machine, which further nodes may join.
type Local interface {
	Cluster
	// Etcd are etcd's addresses, with commas between them.
	Etcd() string
	// SecretFile holds the cluster's secret.
	SecretFile() string
	// Metrics is the text of the metrics of all programs, one after the other.
	Metrics() string
}

// Start runs a cluster until the test ends, with the runner ORRERY_E2E names.
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

// Bounded is a context that ends with the test and no later than await.Patience from now.
func Bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	t.Cleanup(cancel)
	return ctx
}

// WriteTemplate drops files into a template, "<group>/<name>".
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
