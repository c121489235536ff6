package e2e_test

import (
	"fmt"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

func TestARollingRestartReplacesAllAndKeepsTheMinimumRunning(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, arenaGroup(t, c, "game", map[string]any{"minInstances": 2}))
	before := map[string]bool{}
	for _, i := range admin.AwaitRunning("game", 2) {
		before[i.UID] = true
	}
	var made struct{ Revision int }
	admin.Do("POST", "/api/v1/groups/game/restart", nil).OK(202, &made)
	await.That(t, "the end of the deployment", func() string {
		if n := len(admin.Running("game")); n < 2 {
			t.Fatalf("only %d instances run: %+v", n, admin.Instances("game"))
		}
		r := admin.Do("GET", fmt.Sprintf("/api/v1/groups/game/deployments/%d", made.Revision), nil)
		var d struct {
			State                            string
			TotalInstances, UpdatedInstances int
		}
		r.OK(200, &d)
		return await.Unless(d.State == "COMPLETED" && d.TotalInstances == 2 && d.UpdatedInstances == 2, "%s", r.Body)
	})
	for _, i := range admin.AwaitRunning("game", 2) {
		var shown struct{ DeploymentRevision int }
		admin.Do("GET", "/api/v1/services/"+i.UID, nil).OK(200, &shown)
		if before[i.UID] || shown.DeploymentRevision != made.Revision {
			t.Errorf("%s was not replaced: it is of deployment %d", i.ID, shown.DeploymentRevision)
		}
	}
}

func TestABadDeploymentIsRolledBackAndTheOriginalsStay(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, arenaGroup(t, c, "game", map[string]any{"minInstances": 2}))
	admin.AwaitRunning("game", 2)
	state := func(revision int) string {
		var d struct{ State string }
		admin.Do("GET", fmt.Sprintf("/api/v1/groups/game/deployments/%d", revision), nil).OK(200, &d)
		return d.State
	}
	admin.Do("POST", "/api/v1/groups/game/deploy", nil).OK(202)
	await.That(t, "the first deployment", func() string {
		s := state(1)
		return await.Unless(s == "COMPLETED", "%s", s)
	})
	good := map[string]bool{}
	for _, i := range admin.AwaitRunning("game", 2) {
		good[i.UID] = true
	}
	admin.Do("PATCH", "/api/v1/groups/game", map[string]any{"command": "exit 3"}).OK(200)
	admin.Do("POST", "/api/v1/groups/game/deploy", map[string]any{"strategy": "CANARY"}).OK(202)
	await.That(t, "the rollback", func() string {
		s := state(2)
		if s != "ROLLED_BACK" {
			return s
		}
		s = state(3)
		return await.Unless(s == "COMPLETED", "%s", s)
	})
	for _, i := range admin.AwaitRunning("game", 2) {
		if !good[i.UID] {
			t.Errorf("%s was replaced, although it ran what was restored", i.ID)
		}
	}
}

func TestABlueGreenDeploymentSwitchesAllInstancesAtOnce(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, arenaGroup(t, c, "game", map[string]any{"minInstances": 2, "maxInstances": 4}))
	before := map[string]bool{}
	for _, i := range admin.AwaitRunning("game", 2) {
		before[i.UID] = true
	}
	const one = "/api/v1/groups/game/deployments/1"
	type progress struct {
		State          string
		Promoted       bool
		ReadyInstances int
	}
	awaitProgress := func(what string, ok func(progress) bool) {
		t.Helper()
		await.That(t, what, func() string {
			var p progress
			r := admin.Do("GET", one, nil)
			r.OK(200, &p)
			return await.Unless(ok(p), "%s", r.Body)
		})
	}
	admin.Do("POST", "/api/v1/groups/game/deploy", map[string]any{"strategy": "BLUE_GREEN", "minHealthySeconds": 1}).OK(202)
	awaitProgress("the switch", func(p progress) bool {
		states := map[string]int{}
		for _, i := range admin.Instances("game") {
			states[i.State]++
			if i.State == "RUNNING" && !before[i.UID] && !p.Promoted {
				var now progress
				if admin.Do("GET", one, nil).OK(200, &now); !now.Promoted {
					t.Fatalf("%s takes players before the switch", i.ID)
				}
			}
		}
		if states["RUNNING"]+states["DRAINING"] < 2 {
			t.Fatalf("the instances are %v", states)
		}
		return p.Promoted
	})
	awaitProgress("the end", func(p progress) bool { return p.State == "COMPLETED" })
	for _, i := range admin.AwaitRunning("game", 2) {
		if before[i.UID] {
			t.Errorf("%s was not replaced", i.ID)
		}
	}
}
