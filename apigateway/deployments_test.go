package apigateway

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// progress writes the progress of a deployment of the group lobby, as the enforcer does.
func (s *site) progress(number int64, state deployment.State) {
	s.t.Helper()
	j, ok := s.view.Snapshot().Deployment("lobby", number)
	if !ok {
		s.t.Fatalf("no deployment %d", number)
	}
	var rev int64
	if j.Progress != nil {
		rev = j.Progress.ModRev
	}
	s.commit(store.Replace(keys.DeploymentProgress("lobby", number), deployment.Progress{Group: "lobby", Number: number, State: state, Total: 2, Updated: 1}, rev))
}

const lobbyDeployments = "/api/v1/groups/lobby/deployments"

func TestADeploymentIsRequestedAndControlled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.do("GET", lobbyDeployments, nil).want(200).is("total", 0).is("items", []any{}).is("pageSize", 50)
	made := s.do("POST", "/api/v1/groups/lobby/deploy", `{"strategy":"canary","batchSize":2,"canaryInstances":null}`).want(202)
	made.is("revision", 1).is("trigger", "manual").is("strategy", "CANARY").is("state", "IN_PROGRESS").is("createdBy", "admin").is("completedAt", nil).is("rollbackOf", nil).
		is("rollout.batchSize", 2).is("rollout.maxSurge", 2).is("rollout.canaryInstances", 1).is("rollout.healthGateEnabled", true).is("rollout.autoRollbackOnFailure", true).
		is("rollout.minHealthySeconds", 30).is("rollout.minHealthyTps", 18).is("rollout.deadlineSeconds", 300).is("rollout.graceSeconds", 30)
	if at := made.header.Get("Location"); at != lobbyDeployments+"/1" {
		t.Errorf("Location %q", at)
	}
	s.do("POST", "/api/v1/groups/lobby/restart", nil).want(409).naming("deployment 1 of group lobby is IN_PROGRESS")
	const one = lobbyDeployments + "/1"
	s.do("POST", one+"/resume", nil).want(409).naming("is not paused")
	s.do("POST", one+"/pause?dryRun=true", nil).want(200).is("dryRun", true).is("action", "update").naming(`"field":"state"`)
	s.do("POST", one+"/pause", nil).want(200).is("status", "paused").is("deployment.state", "PAUSED")
	s.do("POST", one+"/pause", nil).want(409)
	etag := s.do("GET", one, nil).want(200).header.Get("ETag")
	s.do("POST", one+"/resume", nil, "If-Match", `"1"`).want(412)
	s.do("POST", one+"/resume", nil, "If-Match", etag).want(200).is("status", "resumed").is("deployment.state", "IN_PROGRESS")
	s.do("POST", one+"/promote", nil).want(200).is("status", "promoted").is("deployment.promoted", true)
	s.do("POST", one+"/promote", nil).want(409)
	s.progress(1, deployment.InProgress)
	s.do("GET", one, nil).want(200).is("totalInstances", 2).is("updatedInstances", 1)
	s.do("POST", one+"/cancel", nil).want(200).is("status", "cancelled")
	s.do("POST", one+"/pause", nil).want(409).naming("has ended")
	s.do("POST", "/api/v1/groups/lobby/restart", nil).want(202).is("revision", 2).is("trigger", "rolling_restart").is("strategy", "ROLLING")
	s.do("GET", lobbyDeployments, nil).want(200).is("total", 2).is("items.0.revision", 2).is("data.1.revision", 1)
	s.do("GET", "/api/v1/audit?action=group.deploy", nil).want(200).is("total", 1)
	s.user("viewer", "VIEWER").do("POST", lobbyDeployments+"/2/pause", nil).want(403)
}

func TestWrongDeploymentsAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.group("manual", map[string]any{"scalingMode": "MANUAL"})
	s.group("world", map[string]any{"static": true})
	before := s.revision()
	for _, wrong := range []struct {
		group, body, field string
		status             int
	}{
		{"lobby", `{"strategy":"GREEN"}`, "strategy", 422},
		{"lobby", `{"strategy":"BLUE_GREEN","batchSize":1}`, "batchSize", 422},
		{"lobby", `{"strategy":"BLUE_GREEN","maxSurge":1}`, "maxSurge", 422},
		{"lobby", `{"strategy":"BLUE_GREEN","maxUnavailable":0}`, "maxUnavailable", 422},
		{"lobby", `{"strategy":"BLUE_GREEN","canaryInstances":1}`, "canaryInstances", 422},
		{"world", `{"strategy":"BLUE_GREEN"}`, "strategy", 422},
		{"manual", `{"strategy":"BLUE_GREEN"}`, "strategy", 422},
		{"lobby", `{"strategy":""}`, "strategy", 422},
		{"lobby", `{"batchSize":0}`, "batchSize", 422},
		{"lobby", `{"batchSize":"two"}`, "batchSize", 400},
		{"lobby", `{"batch":2}`, "batch", 400},
		{"lobby", `{"canaryInstances":1}`, "canaryInstances", 422},
		{"lobby", `{"strategy":"CANARY","canaryInstances":1,"canaryPercent":5}`, "canaryPercent", 422},
		{"lobby", `{"strategy":"CANARY","canaryPercent":101}`, "canaryPercent", 422},
		{"lobby", `{"strategy":"CANARY","canaryInstances":-1}`, "canaryInstances", 422},
		{"lobby", `{"promotionTimeoutSeconds":0}`, "promotionTimeoutSeconds", 422},
		{"lobby", `{"replacementTimeoutSeconds":0}`, "replacementTimeoutSeconds", 422},
		{"lobby", `{"minHealthySeconds":5}`, "minHealthySeconds", 422},
		{"lobby", `{"minHealthyTps":5}`, "minHealthyTps", 422},
		{"lobby", `{"healthGateEnabled":true,"minHealthySeconds":-1}`, "minHealthySeconds", 422},
		{"lobby", `{"healthGateEnabled":true,"minHealthyTps":-1}`, "minHealthyTps", 422},
		{"lobby", `{"deadlineSeconds":-1}`, "deadlineSeconds", 422},
		{"lobby", `{"graceSeconds":90000}`, "graceSeconds", 422},
		{"lobby", `{"maxSurge":1,"maxUnavailable":1}`, "maxUnavailable", 422},
		{"lobby", `{"maxSurge":0,"maxUnavailable":0}`, "maxUnavailable", 422},
		{"lobby", `{"maxSurge":-1}`, "maxSurge", 422},
		{"world", `{"maxSurge":1}`, "maxSurge", 422},
		{"manual", `{"strategy":"CANARY"}`, "strategy", 422},
		{"none", `{}`, "none", 404},
	} {
		s.do("POST", "/api/v1/groups/"+wrong.group+"/deploy", wrong.body).want(wrong.status).naming(wrong.field)
	}
	s.do("POST", "/api/v1/groups/lobby/restart", `{"batchSize":2}`).want(400).naming("batchSize")
	s.do("GET", lobbyDeployments+"/x", nil).want(400).naming("rev")
	s.do("GET", lobbyDeployments+"/1", nil).want(404)
	s.do("POST", lobbyDeployments+"/1/pause", nil).want(404)
	s.do("GET", "/api/v1/groups/none/deployments", nil).want(404)
	if moved := s.moved(before); len(moved) != 0 {
		t.Errorf("refused requests wrote %v", moved)
	}
	s.do("POST", "/api/v1/groups/manual/deploy", nil).want(202).is("strategy", "ROLLING")
	s.do("POST", "/api/v1/groups/world/deploy", nil).want(202).is("rollout.maxSurge", 0).is("rollout.maxUnavailable", 1)
}

func TestADeploymentHasTheStrategyOfItsGroup(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", map[string]any{"updateStrategy": "CANARY"})
	s.do("POST", "/api/v1/groups/lobby/deploy?dryRun=true", nil).want(200).is("deployment.strategy", "CANARY")
	s.do("POST", "/api/v1/groups/lobby/restart", nil).want(202).is("strategy", "ROLLING")
}

func TestABlueGreenDeploymentNeedsRoomForASecondSet(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", map[string]any{"memoryMb": 1024, "maxInstances": 3})
	first, second := s.start("lobby"), s.start("lobby")
	s.status(first, "node-1", fleet.Status{State: fleet.Online})
	s.status(second, "node-1", fleet.Status{State: fleet.Online})
	const deploy, body = "/api/v1/groups/lobby/deploy", `{"strategy":"blue_green"}`
	before := s.revision()
	s.do("POST", deploy, body).want(422).naming("maxInstances is 3: raise it to 4")
	if moved := s.moved(before); len(moved) != 0 {
		t.Errorf("a refused request wrote %v", moved)
	}
	s.do("PATCH", "/api/v1/groups/lobby", `{"maxInstances":4,"memoryMb":4096}`).want(200)
	s.do("POST", deploy, body).want(422).naming("the nodes have room for")
	s.do("PATCH", "/api/v1/groups/lobby", `{"memoryMb":1024}`).want(200)
	s.do("POST", deploy+"?dryRun=true", body).want(200).is("replace.1.wave", 1).naming("2 replacements would start at once")
	s.do("POST", deploy, body).want(202).is("strategy", "BLUE_GREEN").is("rollout.healthGateEnabled", true).is("rollout.autoRollbackOnFailure", true)
	s.do("POST", lobbyDeployments+"/1/promote", nil).want(200).is("deployment.promoted", true)
}

func TestASleepingInstanceLeavesItsMemoryToABlueGreenDeployment(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", map[string]any{"memoryMb": 3072, "maxInstances": 2})
	id := s.start("lobby")
	s.hold(id, "node-1", fleet.Resources{MemoryMiB: 3072})
	const deploy, body = "/api/v1/groups/lobby/deploy?dryRun=true", `{"strategy":"BLUE_GREEN"}`
	s.do("POST", deploy, body).want(422).naming("the nodes have room for 0 more")
	s.edit(id, func(next *fleet.Intent) { next.Sleep = &fleet.Nap{Reason: fleet.ReasonAsleep} })
	s.status(id, "node-1", fleet.Status{State: fleet.Sleeping, Reason: fleet.ReasonAsleep})
	s.do("POST", deploy, body).want(200)
}

func TestADryRunOfADeploymentListsWhatItReplacesInOrder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 8192})
	s.group("lobby", nil)
	ready, starting, frozen := s.start("lobby"), s.start("lobby"), s.start("lobby")
	s.status(ready, "node-1", fleet.Status{State: fleet.Online})
	s.status(starting, "node-1", fleet.Status{State: fleet.Starting})
	s.do("POST", "/api/v1/services/"+string(frozen)+"/freeze", nil).want(200)
	before := s.revision()
	s.do("POST", "/api/v1/groups/lobby/deploy?dryRun=true", `{"strategy":"CANARY"}`).want(200).is("dryRun", true).is("action", "deploy").
		is("replace.0.uid", string(starting)).is("replace.0.wave", 1).is("replace.1.uid", string(ready)).is("replace.1.wave", 2).
		naming("it is empty").naming("1 instances stay as they are")
	if moved := s.moved(before); len(moved) != 0 {
		t.Errorf("a dry run wrote %v", moved)
	}
	s.do("POST", "/api/v1/groups/lobby/deploy", nil).want(202)
	fresh := s.start("lobby")
	s.do("GET", "/api/v1/services/"+string(fresh), nil).want(200).is("deploymentRevision", 1)
	s.do("GET", "/api/v1/services/"+string(ready), nil).want(200).is("deploymentRevision", 0)
}

func TestARollbackRestoresTheSettingsAndTheTemplates(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	put := func(content string) string {
		t.Helper()
		s.do("PUT", "/api/v1/templates/lobby/files/content?path=a", `{"content":"`+content+`"}`).want(200)
		hash, _ := s.do("GET", "/api/v1/templates/lobby", nil).want(200).field("hash").(string)
		return hash
	}
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	first := put("1")
	s.group("lobby", map[string]any{"memoryMb": 100, "command": "run"})
	deploy := func() { t.Helper(); s.do("POST", "/api/v1/groups/lobby/deploy", nil).want(202) }
	deploy()
	s.do("POST", lobbyDeployments+"/1/rollback", nil).want(409).naming("no earlier deployment completed")
	s.progress(1, deployment.Completed)
	second := put("2")
	s.do("PATCH", "/api/v1/groups/lobby", `{"memoryMb":200,"minInstances":0,"maxInstances":7,"env":{"KEY":"secret"}}`).want(200)
	deploy()
	s.progress(2, deployment.InProgress)
	two := s.do("GET", lobbyDeployments+"/2", nil).want(200)
	two.naming(`\"lobby\":\"` + second)
	if raw := s.user("viewer", "VIEWER").do("GET", lobbyDeployments+"/2", nil).want(200).raw; strings.Contains(raw, "secret") {
		t.Errorf("a viewer sees the environment: %s", raw)
	}
	before := s.revision()
	s.do("POST", lobbyDeployments+"/2/rollback?dryRun=true", nil).want(200).is("deployment.trigger", "rollback").is("deployment.rollbackOf", 2).is("deployment.restores", 1)
	if moved := s.moved(before); len(moved) != 0 {
		t.Errorf("a dry run wrote %v", moved)
	}
	s.do("POST", lobbyDeployments+"/2/rollback", nil, "If-Match", `"1"`).want(412)
	s.do("POST", lobbyDeployments+"/2/rollback", nil).want(200).is("status", "rolled_back").is("deployment.revision", 3).is("deployment.trigger", "rollback").
		is("deployment.rollbackOf", 2).naming(`\"lobby\":\"` + first)
	s.do("GET", "/api/v1/groups/lobby", nil).want(200).is("memoryMb", 100).is("maxInstances", 7).is("revision", 3)
	s.do("POST", lobbyDeployments+"/2/rollback", nil).want(409).naming("rolled back already")
	id := s.start("lobby")
	s.do("GET", "/api/v1/services/"+string(id), nil).want(200).is("deploymentRevision", 3).is("templates.0.digest", first)
	s.progress(3, deployment.Completed)
	deploy()
	id = s.start("lobby")
	s.do("GET", "/api/v1/services/"+string(id), nil).want(200).is("deploymentRevision", 4).is("templates.0.digest", second)
}

func TestAFailedDeploymentIsRolledBackByItself(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.do("POST", "/api/v1/groups/lobby/deploy", nil).want(202)
	s.progress(1, deployment.Completed)
	s.do("PATCH", "/api/v1/groups/lobby", `{"memoryMb":99}`).want(200)
	s.do("POST", "/api/v1/groups/lobby/deploy", `{"autoRollbackOnFailure":true}`).want(202)
	s.progress(2, deployment.Failed)
	await.That(t, "the rollback", func() string {
		r := s.do("GET", lobbyDeployments, nil).want(200)
		return await.Unless(r.field("data.0.trigger") == "rollback", "%s", r.raw)
	})
	s.do("GET", "/api/v1/groups/lobby", nil).want(200).is("memoryMb", 1024)
	s.do("GET", "/api/v1/audit?action=group.rollback", nil).want(200).is("total", 1).is("data.0.username", "automatic rollback")
}
