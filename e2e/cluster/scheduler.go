package cluster

import (
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster/site"
	"github.com/orreryhq/orrery/libs/pki"
)

// AddScheduler runs an additional scheduler in a separate process until the test ends.
func AddScheduler(t testing.TB, c Local, name string) {
	t.Helper()
	p := site.NewProcess(name, Program(t, "./scheduler/cmd/scheduler"), filepath.Join(t.TempDir(), name)+".log",
		append(c.Trust(pki.Identity{Service: pki.Scheduler, Name: name}),
			"--replica", name, "--listen", "127.0.0.1:0", "--etcd-endpoints", c.Etcd(), "--cluster-secret-file", c.SecretFile(), "--log-level", "debug", "--max-cpu", "100")...)
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
