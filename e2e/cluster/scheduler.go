package cluster

import (
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster/site"
)

// AddScheduler runs an additional scheduler in a separate process until the test ends.
func AddScheduler(t testing.TB, c Local, name string) {
	t.Helper()
	p := site.NewProcess(name, Program(t, "./scheduler/cmd/scheduler"), filepath.Join(t.TempDir(), name)+".log",
		"--replica", name, "--listen", "127.0.0.1:0", "--etcd-endpoints", c.Etcd(), "--cluster-secret-file", c.SecretFile(), "--log-level", "debug", "--max-cpu", "100")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			log, _ := p.Log()
			t.Logf("---- %s\n%s", name, log)
		}
	})
}
