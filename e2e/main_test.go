// Package e2e_test holds the end-to-end scenarios. Each uses the real path, gateway → etcd
// → enforcer → scheduler → agent → process and back. ORRERY_E2E selects how the cluster
// runs (see package cluster).
package e2e_test

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/examples/arena/ping"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/proctest"
)

func TestMain(m *testing.M) {
	await.Parallel(3) // the largest scenarios run alone
	code := m.Run()
	cluster.Cleanup()
	os.Exit(code)
}

// arenaGroup returns the spec of a group of arena servers with its own template.
func arenaGroup(t *testing.T, c cluster.Cluster, name string, extra map[string]any) map[string]any {
	t.Helper()
	cluster.WriteTemplate(t, c, "demo/"+name, map[string]string{
		"server.properties": "server-port=%PORT%\nmotd=%INSTANCE_NAME% of %GROUP%\nmax-players=%MAX_PLAYERS%\nlevel-name=world\n",
	})
	first, last := ports(t)
	spec := map[string]any{
		"name": name, "command": "exec " + cluster.Program(t, "./examples/arena/cmd/arena"),
		"templates": []string{"demo/" + name}, "fileModifications": []string{"server.properties"},
		"readiness": map[string]any{"type": "port"}, "memoryMb": 32, "maxPlayers": 7,
		"portRangeStart": first, "portRangeEnd": last, "shutdownGraceSeconds": 10,
	}
	for k, v := range extra {
		spec[k] = v
	}
	return spec
}

// portsPerTest is the number of ports that a test's servers may use. Tests run in parallel on one
// host.
const portsPerTest = 150

var (
	portsMu sync.Mutex
	portsOf = map[string]int{} // the first port of each test
)

// ports returns the first and the last port of the servers of a test.
func ports(t *testing.T) (first, last int) {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	portsMu.Lock()
	defer portsMu.Unlock()
	first, known := portsOf[test]
	if !known {
		first = 10000 + portsPerTest*len(portsOf)
		portsOf[test] = first
	}
	return first, first + portsPerTest - 1
}

// createGroup creates a group once its templates have been published.
func createGroup(t *testing.T, admin *cluster.Client, spec map[string]any) {
	t.Helper()
	await.That(t, fmt.Sprint("group ", spec["name"], " accepted"), func() string {
		r := admin.Do("POST", "/api/v1/groups", spec)
		if r.Status == 201 {
			return ""
		}
		return string(r.Body)
	})
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func pingArena(t *testing.T, port int) ping.Status {
	t.Helper()
	s, err := ping.Ping(cluster.Bounded(t), address(port))
	if err != nil {
		t.Fatalf("pinging port %d: %v", port, err)
	}
	return s
}

// carriers returns the processes that have an instance's mark in their environment.
func carriers(t *testing.T, uid string) []int {
	t.Helper()
	return proctest.Where(t, func(p proctest.Process) bool { return p.Carries("ORRERY_INSTANCE_ID=" + uid) })
}

func portFree(port int) bool {
	l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}
