package e2e_test

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/proctest"
)

// awaitDrain waits until the drain of a node has a state and the node a status.
func awaitDrain(t *testing.T, admin *cluster.Client, node, state, status string) {
	t.Helper()
	await.That(t, node+" "+state+" and "+status, func() string {
		var n struct {
			Status string
			Drain  struct{ State string }
		}
		r := admin.Do("GET", "/api/v1/nodes/"+node, nil)
		if r.OK(200, &n); n.Drain.State == state && n.Status == status {
			return ""
		}
		return string(r.Body)
	})
}

func TestANodeIsDrainedUndrainedAndShutDown(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, arenaGroup(t, c, "lobby", map[string]any{"minInstances": 1, "maxInstances": 1}))
	createGroup(t, admin, arenaGroup(t, c, "world", map[string]any{"static": true, "minInstances": 1}))
	first, world := admin.AwaitRunning("lobby", 1)[0], admin.AwaitRunning("world", 1)[0]
	two := cluster.AddNode(t, c, admin, cluster.NodeOptions{ID: "node-2"})

	var dry struct {
		Instances []struct{ ID, Action string }
	}
	admin.Do("POST", "/api/v1/nodes/node-1/drain?shutdown=false&timeout=600&dryRun=true", nil).OK(200, &dry)
	if len(dry.Instances) != 2 || dry.Instances[0].ID != world.ID || dry.Instances[0].Action != "RETIRE" || dry.Instances[1].ID != first.ID || dry.Instances[1].Action != "WAIT" {
		t.Errorf("the dry run says %+v", dry)
	}
	admin.Do("POST", "/api/v1/nodes/node-1/drain?shutdown=false&timeout=600", nil).OK(200)
	awaitDrain(t, admin, "node-1", "COMPLETED", "CORDONED")
	second := admin.AwaitRunning("lobby", 1)[0]
	if second.Node != "node-2" || second.UID == first.UID || proctest.Lives(first.PID) || proctest.Lives(world.PID) {
		t.Errorf("%+v and %+v were drained, and %+v runs", first, world, second)
	}
	if down := admin.Instance(world.UID); down.State != "STOPPED" || !strings.Contains(down.Message, "drained") {
		t.Errorf("the static instance is %+v", down)
	}

	admin.Do("POST", "/api/v1/nodes/node-1/undrain", nil).OK(200)
	if again := admin.AwaitState(world.UID, "RUNNING"); again.Node != "node-1" || again.Generation != world.Generation+1 {
		t.Errorf("after the drain it is %+v", again)
	}

	admin.Do("POST", "/api/v1/nodes/node-2/drain", map[string]any{"timeout": 600}).OK(200)
	await.That(t, "the end of the agent", func() string { return await.Unless(!two.Running(), "it runs") })
	awaitDrain(t, admin, "node-2", "COMPLETED", "OFFLINE")
	if third := admin.AwaitRunning("lobby", 1)[0]; third.Node != "node-1" || proctest.Lives(second.PID) {
		t.Errorf("%+v was drained, and %+v runs", second, third)
	}
}
