package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// scheduleRun is a run of a schedule in an answer.
type scheduleRun struct {
	Number  int
	Result  string
	Message string
	Steps   []struct {
		Action, Command string
		Instances       []struct{ UID, Name, State, Message string }
	}
}

func TestAScheduledRestartWarnsAndDeploysTheGroup(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, arenaGroup(t, c, "game", map[string]any{"minInstances": 2}))
	before := admin.AwaitRunning("game", 2)
	admin.Do("PUT", "/api/v1/schedules/nightly", map[string]any{
		"group": "game", "action": "restart", "cron": "0 0 29 2 *", "warnings": []any{map[string]any{"beforeSeconds": 1, "command": "say restart soon"}},
	}).OK(201)
	admin.Do("POST", "/api/v1/schedules/nightly/run", map[string]any{"warn": true}).OK(202)
	var deployed struct{ Trigger, State string }
	var history struct{ Data []scheduleRun }
	await.That(t, "the run ends", func() string {
		admin.Do("GET", "/api/v1/schedules/nightly/history", nil).OK(200, &history)
		return await.Unless(len(history.Data) == 1, "%d runs have ended", len(history.Data))
	})
	run := history.Data[0]
	if run.Result != "COMPLETED" || len(run.Steps) != 2 || run.Steps[0].Command != "say restart soon" {
		t.Fatalf("the run is %+v", run)
	}
	for _, step := range run.Steps {
		for _, i := range step.Instances {
			if i.State != "DONE" {
				t.Errorf("%s of %s: %s %s", step.Action, i.Name, i.State, i.Message)
			}
		}
	}
	admin.Do("GET", "/api/v1/groups/game/deployments/1", nil).OK(200, &deployed)
	if deployed.Trigger != "rolling_restart" || deployed.State != "COMPLETED" {
		t.Errorf("the deployment is %+v", deployed)
	}
	old := map[string]bool{}
	for _, i := range before {
		old[i.UID] = true
		var log struct{ Lines []struct{ Line string } }
		admin.Do("GET", "/api/v1/services/"+i.UID+"/console/history", nil).OK(200, &log)
		if text := fmt.Sprint(log.Lines); !strings.Contains(text, "restart soon") {
			t.Errorf("%s did not get the warning: %s", i.ID, text)
		}
	}
	for _, i := range admin.AwaitRunning("game", 2) {
		if old[i.UID] {
			t.Errorf("%s was not replaced", i.ID)
		}
	}
}

func TestAnOverlayRaisesTheMinimumUntilItEnds(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, arenaGroup(t, c, "game", map[string]any{"minInstances": 1}))
	admin.AwaitRunning("game", 1)
	now := time.Now().UTC()
	admin.Do("PUT", "/api/v1/overlays/event", map[string]any{
		"groups": []string{"game"}, "from": now.Add(-time.Hour), "until": now.Add(time.Hour), "overlay": map[string]any{"minInstances": 3},
	}).OK(201)
	admin.AwaitRunning("game", 3)
	admin.Do("PUT", "/api/v1/overlays/event", map[string]any{
		"groups": []string{"game"}, "from": now.Add(-time.Hour), "until": now.Add(time.Hour), "overlay": map[string]any{"minInstances": 3}, "enabled": false,
	}).OK(200)
	admin.AwaitRunning("game", 1)
}
