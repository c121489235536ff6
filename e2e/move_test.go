package e2e_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/proctest"
)

// awaitMove waits until the move of an instance has a step.
func awaitMove(t *testing.T, admin *cluster.Client, ref string, steps ...string) string {
	t.Helper()
	var m struct{ Step, Message string }
	await.That(t, "a move that is "+strings.Join(steps, " or "), func() string {
		admin.Do("GET", "/api/v1/instances/"+ref+"/move", nil).OK(200, &m)
		for _, s := range steps {
			if m.Step == s {
				return ""
			}
		}
		return m.Step + " " + m.Message
	})
	return m.Step
}

// startWorld starts a cluster with a static instance, and writes its mine.txt. The instance notes in the
// file lock that it holds a lock while it runs.
func startWorld(t *testing.T, mine string) (c cluster.Local, admin *cluster.Client, world cluster.Instance, lock string) {
	t.Helper()
	c = cluster.Start(t, cluster.Options{})
	admin = cluster.Login(t, c)
	lock = filepath.Join(cluster.OpenDir(t), "lock")
	spec := arenaGroup(t, c, "world", map[string]any{"static": true, "minInstances": 1})
	spec["command"] = spec["command"].(string) + " --lock " + lock
	createGroup(t, admin, spec)
	world = admin.AwaitRunning("world", 1)[0]
	if err := os.WriteFile(filepath.Join("/proc", strconv.Itoa(world.PID), "cwd", "mine.txt"), []byte(mine), 0o600); err != nil {
		t.Fatal(err)
	}
	return c, admin, world, lock
}

func TestAStaticInstanceMovesWithItsDataAndBack(t *testing.T) {
	t.Parallel()
	c, admin, first, lock := startWorld(t, strings.Repeat("a diamond block ", 1<<16))
	two := cluster.AddNode(t, c, admin, cluster.NodeOptions{ID: "node-2"})

	admin.Do("POST", "/api/v1/instances/world-1/move", map[string]any{"node": "node-2", "deadlineSeconds": 0}).OK(200)
	two.Kill() // the target's agent dies at some step
	if err := two.Start(); err != nil {
		t.Fatal(err)
	}
	two.AwaitOnline(admin)
	awaitMove(t, admin, first.UID, "DONE")
	moved := admin.AwaitState(first.UID, "RUNNING")
	if moved.Node != "node-2" || moved.Generation <= first.Generation || proctest.Lives(first.PID) {
		t.Fatalf("it was %+v and is %+v", first, moved)
	}
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(moved.PID), "cwd", "mine.txt"))
	if err != nil || len(b) != 1<<20 {
		t.Errorf("the data did not arrive: %d bytes, %v", len(b), err)
	}

	admin.Do("POST", "/api/v1/instances/world-1/move", map[string]any{"deadlineSeconds": 0}).OK(200)
	awaitMove(t, admin, first.UID, "DONE")
	if back := admin.AwaitState(first.UID, "RUNNING"); back.Node != "node-1" || proctest.Lives(moved.PID) {
		t.Errorf("it is %+v", back)
	}
	text, err := os.ReadFile(lock)
	if err != nil || strings.Contains(string(text), "refused") || strings.Count(string(text), "acquired") != 3 {
		t.Errorf("two copies met, or the log is wrong: %v\n%s", err, text)
	}
}

func TestAMoveSurvivesTheDeathOfEitherAgentAtEachStep(t *testing.T) {
	t.Parallel()
	c, admin, now, lock := startWorld(t, "a diamond block")
	nodes := []*cluster.Node{cluster.AddNode(t, c, admin, cluster.NodeOptions{ID: "node-2"}), cluster.AddNode(t, c, admin, cluster.NodeOptions{ID: "node-3"})}
	admin.Do("POST", "/api/v1/instances/world-1/move", map[string]any{"node": "node-2", "deadlineSeconds": 0}).OK(200)
	awaitMove(t, admin, now.UID, "DONE")
	steps := []string{"STOPPING", "COPYING", "STARTING", "DONE"}
	for round := range 6 {
		from, to := nodes[round%2], nodes[(round+1)%2]
		victim := from
		if round >= 3 {
			victim = to
		}
		admin.Do("POST", "/api/v1/instances/world-1/move", map[string]any{"node": to.ID, "deadlineSeconds": 0}).OK(200)
		at := awaitMove(t, admin, now.UID, steps[round%3:]...)
		victim.Kill()
		if err := victim.Start(); err != nil {
			t.Fatal(err)
		}
		victim.AwaitOnline(admin)
		awaitMove(t, admin, now.UID, "DONE")
		moved := admin.AwaitState(now.UID, "RUNNING")
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(moved.PID), "cwd", "mine.txt"))
		if moved.Node != to.ID || err != nil || string(b) != "a diamond block" {
			t.Errorf("the agent of %s died at %s: it is %+v with %q: %v", victim.ID, at, moved, b, err)
		}
	}
	if text, err := os.ReadFile(lock); err != nil || strings.Contains(string(text), "refused") {
		t.Errorf("two copies met: %v\n%s", err, text)
	}
}

func TestADrainMovesAStaticInstanceAlthoughTheEnforcerIsKilled(t *testing.T) {
	t.Parallel()
	c, admin, first, lock := startWorld(t, "a diamond block")
	cluster.AddNode(t, c, admin, cluster.NodeOptions{ID: "node-2"})

	const ask = "/api/v1/nodes/node-1/drain?shutdown=false&moveStatic=true&timeout=600"
	var dry struct {
		Instances []struct {
			ID   string
			Move struct{ To string }
		}
	}
	admin.Do("POST", ask+"&dryRun=true", nil).OK(200, &dry)
	if len(dry.Instances) != 1 || dry.Instances[0].ID != first.ID || dry.Instances[0].Move.To != "node-2" {
		t.Errorf("the dry run says %+v", dry)
	}
	admin.Do("POST", ask, nil).OK(200)
	var n struct {
		Drain struct {
			Moves []struct{ ID, To, Step string }
		}
	}
	await.That(t, "the move to begin", func() string {
		admin.Do("GET", "/api/v1/nodes/node-1", nil).OK(200, &n)
		return await.Unless(len(n.Drain.Moves) > 0, "%+v", n)
	})
	if enforcer := cluster.Service(c, "enforcer-1"); enforcer != nil {
		enforcer.Kill()
		if err := enforcer.Start(); err != nil {
			t.Fatal(err)
		}
	}
	awaitDrain(t, admin, "node-1", "COMPLETED", "CORDONED")
	moved := admin.AwaitState(first.UID, "RUNNING")
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(moved.PID), "cwd", "mine.txt"))
	if moved.Node != "node-2" || proctest.Lives(first.PID) || err != nil || string(b) != "a diamond block" {
		t.Errorf("it was %+v and is %+v with %q: %v", first, moved, b, err)
	}
	if admin.Do("GET", "/api/v1/nodes/node-1", nil).OK(200, &n); len(n.Drain.Moves) != 1 || n.Drain.Moves[0].Step != "DONE" || n.Drain.Moves[0].To != "node-2" {
		t.Errorf("the drain reports %+v", n)
	}
	admin.Do("POST", "/api/v1/nodes/node-1/undrain", nil).OK(200)
	if text, err := os.ReadFile(lock); err != nil || strings.Contains(string(text), "refused") || strings.Count(string(text), "acquired") != 2 {
		t.Errorf("two copies met, or the log is wrong: %v\n%s", err, text)
	}
}
