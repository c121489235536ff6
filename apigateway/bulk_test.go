package apigateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// bulkSite has two lobbies and an arena on node-1, and a stopped lobby.
func bulkSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.node("node-2", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", map[string]any{"maxInstances": 3})
	s.group("arena", map[string]any{"labels": map[string]string{"mode": "duels"}})
	for _, g := range []fleet.GroupName{"lobby", "lobby", "arena"} {
		s.running(g)
	}
	ended := s.start("lobby")
	s.status(ended, "node-1", fleet.Status{State: fleet.Stopped})
	return s
}

const instancesBulk = "/api/v1/instances/bulk"

func TestABulkRequestActsOnEachSelectedInstance(t *testing.T) {
	t.Parallel()
	s := bulkSite(t)
	before := s.revision()
	ask := `{"action":"stop","groups":["lobby","arena"],"node":"node-1"}`
	s.do("POST", instancesBulk+"?dryRun=true", ask).want(200).is("dryRun", true).is("selected", 3).is("changed", 3).
		is("data.0.id", "arena-1").is("data.1.id", "lobby-1").is("data.2.id", "lobby-2").is("data.0.reason", "StopRequested").is("data.0.state", "RUNNING")
	if moved := s.moved(before); len(moved) != 0 {
		t.Errorf("a dry run wrote %v", moved)
	}
	s.do("POST", instancesBulk+"?parallel=1", ask).want(200).is("dryRun", false).is("selected", 3).is("succeeded", 3).is("changed", 3).is("data.0.ok", true)
	for _, name := range []string{"arena-1", "lobby-1", "lobby-2"} {
		if i, _ := s.view.Snapshot().Find(name); i.Intent.Desired != fleet.DesiredStopped {
			t.Errorf("%s is to be %s", name, i.Intent.Desired)
		}
	}
	s.do("GET", "/api/v1/audit?action=instance.stop", nil).want(200).is("total", 3).is("data.0.username", "admin")
	s.do("POST", instancesBulk, ask).want(200).is("selected", 0).is("data", []any{})
	s.do("POST", instancesBulk, `{"action":"stop","ids":["lobby-1"]}`).want(200).is("succeeded", 1).is("changed", 0).is("data.0.changed", false)
	s.do("POST", "/api/v1/services/bulk", `{"action":"kill","labels":"mode=duels"}`).want(200).is("selected", 1).is("data.0.id", "arena-1")
	if i, _ := s.view.Snapshot().Find("arena-1"); !i.Intent.Stop.Force {
		t.Error("the kill is not recorded")
	}
}

func TestOneRefusedInstanceDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	s := bulkSite(t)
	s.do("POST", instancesBulk, `{"action":"delete","ids":["lobby-1","nobody-7","lobby-3"]}`).want(200).is("succeeded", 1).is("failed", 2).
		is("data.0.ok", false).is("data.0.error.code", "CONFLICT").is("data.0.error.status", 409).
		is("data.1.id", "nobody-7").is("data.1.error.code", "NOT_FOUND").is("data.2.ok", true)
	s.do("GET", "/api/v1/instances/lobby-1", nil).want(200)
	s.do("GET", "/api/v1/instances/lobby-3", nil).want(404)
	s.do("GET", "/api/v1/audit?action=instance.delete", nil).want(200).is("total", 1)
}

func TestADryRunOfStartsCountsTheStartsBeforeIt(t *testing.T) {
	t.Parallel()
	s := bulkSite(t)
	id := s.start("lobby")
	s.status(id, "node-1", fleet.Status{State: fleet.Stopped}) // lobby-3 or lobby-4: two have ended, and there is room for one
	for _, dry := range []string{"true", "false"} {
		s.do("POST", instancesBulk+"?parallel=1&dryRun="+dry, `{"action":"start","groups":["lobby"]}`).want(200).
			is("selected", 2).is("succeeded", 1).is("failed", 1).is("data.0.reason", "Requested").is("data.1.error.code", "CONFLICT")
	}
}

func TestACommandReachesEveryRunningInstance(t *testing.T) {
	t.Parallel()
	s := bulkSite(t)
	s.do("POST", instancesBulk, `{"action":"command","command":"say hi","all":true}`).want(200).is("selected", 3).is("succeeded", 3)
	s.do("GET", "/api/v1/audit?action=instance.command", nil).want(200).is("total", 3).is("data.0.details", "say hi")
}

func TestABulkRequestIsCarriedOutOnceForItsKey(t *testing.T) {
	t.Parallel()
	s := bulkSite(t)
	ask := `{"action":"restart","groups":["lobby"]}`
	first := s.do("POST", instancesBulk, ask, keyed, "a").want(200).is("changed", 2)
	again := s.do("POST", instancesBulk, ask, keyed, "a").want(200)
	if first.raw != again.raw || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("the answer is %s, then %s", first.raw, again.raw)
	}
	s.do("POST", instancesBulk, `{"action":"delete","ids":["lobby-1"]}`, keyed, "b").want(200).is("failed", 1)
	i, _ := s.view.Snapshot().Find("lobby-1")
	s.commit(store.Remove(keys.Intent(i.Intent.ID), i.Intent.ModRev))
	s.do("POST", instancesBulk, `{"action":"delete","ids":["lobby-1"]}`, keyed, "b").want(200).is("data.0.error.code", "NOT_FOUND")
}

func TestABulkRequestNeedsThePermissionForItsAction(t *testing.T) {
	t.Parallel()
	s := bulkSite(t)
	s.do("POST", "/api/v1/roles", `{"name":"GUARD","permissions":["instances.view","instances.stop"]}`).want(201)
	guard := s.user("gus", "GUARD")
	before := s.revision()
	for action, permission := range map[string]string{"start": "groups.start", "command": "instances.command", "delete": "instances.delete"} {
		guard.do("POST", instancesBulk, fmt.Sprintf(`{"action":%q,"command":"x","all":true}`, action)).want(403).naming(permission)
	}
	guard.do("POST", "/api/v1/nodes/bulk", `{"action":"cordon","all":true}`).want(403).naming("nodes")
	if moved := s.moved(before); len(moved) != 0 {
		t.Errorf("refused requests wrote %v", moved)
	}
	guard.do("POST", instancesBulk, `{"action":"kill","groups":["arena"]}`).want(200).is("changed", 1)
}

func TestABadBulkRequestIsRefusedByItsField(t *testing.T) {
	t.Parallel()
	s := bulkSite(t)
	before := s.revision()
	many := `"` + strings.Repeat(`x","`, 1000) + `x"`
	for _, c := range []struct {
		path, body, names string
		status            int
	}{
		{instancesBulk, `{"action":"stop"}`, "ids", 422},
		{instancesBulk, `{"action":"stop","all":false}`, "ids", 422},
		{instancesBulk, `{"action":"stop","all":true,"groups":["lobby"]}`, "all", 422},
		{instancesBulk, `{"action":"explode","all":true}`, "action", 422},
		{instancesBulk, `{"all":true}`, "action", 422},
		{instancesBulk, `{"action":"stop","all":true,"command":"x"}`, "command", 422},
		{instancesBulk, `{"action":"command","all":true}`, "command", 422},
		{instancesBulk, `{"action":"command","all":true,"command":"a\nb"}`, "command", 422},
		{instancesBulk, `{"action":"stop","groups":["nowhere"]}`, "groups", 422},
		{instancesBulk, `{"action":"stop","node":"nowhere"}`, "node", 422},
		{instancesBulk, `{"action":"stop","labels":"mode ~ x"}`, "labels", 422},
		{instancesBulk, `{"action":"stop","ids":["lobby-1","lobby-1"]}`, "ids", 422},
		{instancesBulk, `{"action":"stop","ids":[` + many + `]}`, "ids", 422},
		{instancesBulk, `{"action":"stop","selector":{}}`, "selector", 400},
		{instancesBulk, `{"action":"stop","ids":"lobby-1"}`, "ids", 400},
		{instancesBulk + "?parallel=0", `{"action":"stop","all":true}`, "parallel", 422},
		{instancesBulk + "?parallel=65", `{"action":"stop","all":true}`, "parallel", 422},
		{instancesBulk + "?parallel=x", `{"action":"stop","all":true}`, "parallel", 400},
		{"/api/v1/nodes/bulk", `{"action":"cordon"}`, "ids", 422},
		{"/api/v1/nodes/bulk", `{"action":"cordon","all":true,"ids":["node-1"]}`, "all", 422},
		{"/api/v1/nodes/bulk", `{"action":"delete","all":true}`, "action", 422},
		{"/api/v1/nodes/bulk", `{"action":"cordon","all":true,"timeout":5}`, "timeout", 422},
		{"/api/v1/nodes/bulk", `{"action":"drain","all":true,"timeout":0}`, "timeout", 422},
		{"/api/v1/nodes/bulk", `{"action":"cordon","ids":["node-1","node-1"]}`, "ids", 422},
		{"/api/v1/nodes/bulk", `{"action":"cordon","labels":"="}`, "labels", 422},
		{"/api/v1/nodes/bulk", `{"action":"cordon","groups":["lobby"]}`, "groups", 400},
	} {
		s.do("POST", c.path, c.body).want(c.status).naming(c.names)
	}
	if moved := s.moved(before); len(moved) != 0 {
		t.Errorf("refused requests wrote %v", moved)
	}
}

func TestABulkRequestActsOnEachSelectedNode(t *testing.T) {
	t.Parallel()
	s := bulkSite(t)
	const path = "/api/v1/nodes/bulk"
	s.do("PATCH", "/api/v1/nodes/node-2", `{"labels":{"zone":"eu"}}`).want(200)
	before := s.revision()
	s.do("POST", path+"?dryRun=true", `{"action":"drain","all":true,"shutdown":false,"timeout":600}`).want(200).is("selected", 2).is("changed", 2).
		is("data.0.id", "node-1").is("data.0.instances.0.action", "RETIRE").is("data.1.id", "node-2")
	s.do("POST", path+"?dryRun=true", `{"action":"cordon","labels":"zone=eu"}`).want(200).is("selected", 1).is("data.0.id", "node-2").is("data.0.changed", true)
	if moved := s.moved(before); len(moved) != 0 {
		t.Errorf("a dry run wrote %v", moved)
	}
	s.do("POST", path, `{"action":"cordon","ids":["node-2","node-9"]}`).want(200).is("succeeded", 1).is("failed", 1).is("data.1.error.code", "NOT_FOUND")
	s.do("POST", path, `{"action":"drain","all":true,"shutdown":false,"timeout":600}`).want(200).is("changed", 2)
	s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("status", "DRAINING").is("drain.shutdown", false).is("drain.drainTimeoutSeconds", 600)
	s.do("POST", path, `{"action":"undrain","all":true}`).want(200).is("changed", 2)
	s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("status", "ONLINE")
	s.do("POST", path, `{"action":"undrain","all":true}`).want(200).is("selected", 0)
	s.do("GET", "/api/v1/audit?action=node.drain", nil).want(200).is("total", 2)
}
