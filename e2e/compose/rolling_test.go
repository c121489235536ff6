package compose_test

import (
	"fmt"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/e2e/compose"
	"github.com/orreryhq/orrery/libs/await"
)

func TestEveryServiceIsRestartedInTurnAndNoPlacementOrCallFails(t *testing.T) {
	s := compose.Start(t)
	admin := cluster.Login(t, s)
	create(admin, arenaGroup("load", 0))
	create(admin, arenaGroup("steady", 3))
	admin.AwaitRunning("steady", 3)
	load := s.StartLoad("load")
	defer load.Stop()
	for _, service := range []string{"templatesvc", "scheduler", "enforcer", "gateway-1", "gateway-2"} {
		for _, c := range s.Containers(service) {
			c.Restart()
			s.AwaitHealthy(c)
			awaitProgress(t, load, c.Name)
		}
	}
	admin.AwaitRunning("steady", 3)
	for _, node := range []string{"agent-1", "agent-2", "agent-3"} {
		restartNode(t, s, admin, node)
		awaitProgress(t, load, node)
	}
	admin.AwaitRunning("steady", 3)
}

// awaitProgress waits until the load has made progress after a restart.
func awaitProgress(t *testing.T, load *compose.Load, restarted string) {
	t.Helper()
	before := load.Done()
	await.That(t, "instances coming and going after the restart of "+restarted, func() string {
		if n := load.Done() - before; n < 5 {
			return fmt.Sprint(n)
		}
		return ""
	})
}

// restartNode restarts a node like an operator: it cordons the node, waits until the
// short-lived instances there end, restarts it and uncordons it.
func restartNode(t *testing.T, s *compose.Stack, admin *cluster.Client, node string) {
	t.Helper()
	admin.Do("POST", "/api/v1/nodes/"+node+"/cordon", nil).OK(200)
	await.That(t, node+" without load", func() string {
		for _, i := range admin.Instances("load") {
			if i.Node == node && i.State != "STOPPED" {
				return fmt.Sprintf("%+v", i)
			}
		}
		return ""
	})
	s.Container(node).Restart()
	s.AwaitHealthy(s.Container(node))
	admin.Do("POST", "/api/v1/nodes/"+node+"/uncordon", nil).OK(200)
	s.AwaitNodes(admin, "agent-1", "agent-2", "agent-3")
}
