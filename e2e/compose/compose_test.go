// Package compose_test holds the scenarios that need a container engine. They run with
// ORRERY_E2E=compose: `make e2e-compose`.
package compose_test

import (
	"fmt"
	"maps"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/e2e/compose"
	"github.com/orreryhq/orrery/examples/arena/ping"
	"github.com/orreryhq/orrery/libs/await"
)

func TestMain(m *testing.M) {
	if os.Getenv("ORRERY_E2E") != "compose" {
		fmt.Println("left out: these scenarios need a container engine, run make e2e-compose")
		return
	}
	os.Exit(m.Run())
}

// arenaGroup returns the spec of a group of the game server in the agents' image.
func arenaGroup(name string, min int) map[string]any {
	return map[string]any{
		"name": name, "command": "exec arena", "minInstances": min, "maxInstances": 0,
		"templates": []string{"demo/arena"}, "fileModifications": []string{"server.properties"},
		"readiness": map[string]any{"type": "port"}, "memoryMb": 32, "maxPlayers": 20,
		"portRangeStart": 30000, "portRangeEnd": 30999, "shutdownGraceSeconds": 10,
	}
}

func create(admin *cluster.Client, group map[string]any) {
	admin.Do("POST", "/api/v1/groups", group).OK(201)
}

// perNode counts instances by node.
func perNode(all []cluster.Instance) map[string]int {
	count := map[string]int{}
	for _, i := range all {
		count[i.Node]++
	}
	return count
}

// awaitAnswer waits until a game server answers at its recorded address.
func awaitAnswer(t *testing.T, s *compose.Stack, i cluster.Instance) {
	t.Helper()
	address := net.JoinHostPort(s.Container(i.Node).IP(t.Context()), strconv.Itoa(i.Port))
	await.That(t, fmt.Sprint(i.ID, " answering at ", address), func() string {
		if _, err := ping.Ping(cluster.Bounded(t), address); err != nil {
			return err.Error()
		}
		return ""
	})
}

func TestSixServersFillThreeNodesAndBothGatewaysShowThem(t *testing.T) {
	t.Parallel()
	s := compose.Start(t)
	first, second := cluster.Login(t, s.Through(1)), cluster.Login(t, s.Through(2))
	group := arenaGroup("lobby", 6)
	group["memoryMb"] = 900 // a node offers 2048
	create(first, group)
	running := first.AwaitRunning("lobby", 6)
	want := map[string]int{"agent-1": 2, "agent-2": 2, "agent-3": 2}
	if nodes := perNode(running); !maps.Equal(nodes, want) {
		t.Errorf("instances per node: %v, want %v", nodes, want)
	}
	if nodes := perNode(second.AwaitRunning("lobby", 6)); !maps.Equal(nodes, want) {
		t.Errorf("the second gateway shows %v per node, want %v", nodes, want)
	}
	for _, i := range running {
		awaitAnswer(t, s, i)
		first.Do("POST", "/api/v1/services/"+i.ID+"/command", map[string]string{"command": "say hello " + i.UID}).OK(200)
		await.That(t, "the line on the console of "+i.ID, func() string {
			console := second.Do("GET", "/api/v1/services/"+i.ID+"/console/history", nil).OK(200).Body
			if strings.Contains(string(console), "hello "+i.UID) {
				return ""
			}
			return string(console)
		})
	}
}

func TestAGameServerCannotReadTheSecretsOfTheFleet(t *testing.T) {
	s := compose.Start(t)
	admin := cluster.Login(t, s)
	group := arenaGroup("curious", 1)
	group["command"] = `id -un >who; cat /run/orrery/* /run/orrery-admin/* /proc/1/environ >secrets 2>/dev/null; exec arena`
	create(admin, group)
	node := s.Container(admin.AwaitRunning("curious", 1)[0].Node)
	out, err := node.Exec(t.Context(), "sh", "-c", "cd /var/lib/orrery/node/running/* && cat who secrets")
	if err != nil || out != "instance" {
		t.Errorf("it is, and reads: %q, %v", out, err)
	}
}
