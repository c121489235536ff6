package e2e_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

func TestServicesGetCertificatesWithoutEndingAnInstance(t *testing.T) {
	t.Parallel()
	pids := map[string]int{}
	t.Cleanup(func() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	c := cluster.Start(t, cluster.Options{Plain: true, KeepInstances: true})
	admin := cluster.Login(t, c)
	group := arenaGroup(t, c, "lobby", map[string]any{"minInstances": 2})
	createGroup(t, admin, group)
	for _, i := range admin.AwaitRunning("lobby", 2) {
		pids[i.ID] = i.PID
	}
	alive := func(when string) {
		for name, pid := range pids {
			if err := syscall.Kill(pid, 0); err != nil {
				t.Errorf("after %s: %s with pid %d: %v", when, name, pid, err)
			}
		}
	}
	if !cluster.Certify(c, alive) {
		return // its services do not call each other over a network
	}
	for name, pid := range pids {
		if now := admin.AwaitState(name, "RUNNING").PID; now != pid {
			t.Errorf("%s has pid %d, had %d", name, now, pid)
		}
	}
	// A start fetches templates, and a command goes from the gateway to the agent.
	admin.Do("POST", "/api/v1/groups/lobby/start", map[string]int{"count": 1}).OK(200)
	pids["lobby-3"] = admin.AwaitState("lobby-3", "RUNNING").PID
	admin.Do("POST", "/api/v1/services/lobby-1/command", map[string]string{"command": "say encrypted"}).OK(200)
	await.That(t, "the line on the console", func() string {
		history := string(admin.Do("GET", "/api/v1/services/lobby-1/console/history", nil).OK(200).Body)
		return await.Unless(strings.Contains(history, "encrypted"), "%s", history)
	})
}
