package apigateway

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/nodeagent/client"
)

func TestANodeIsShutDownByItsAgent(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	agent := s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	asked := []client.Shutdown{}
	agent.mu.Lock()
	agent.more = func(w http.ResponseWriter, r *http.Request) {
		var b client.Shutdown
		if r.Method+r.URL.Path != "POST/v1/shutdown" || json.NewDecoder(r.Body).Decode(&b) != nil {
			http.NotFound(w, r)
			return
		}
		if asked = append(asked, b); b.Reason == "of another" {
			wire.Encode(w, wire.Internal, "", errs.New(errs.Conflict, "this is the agent of node node-2"))
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
	agent.mu.Unlock()
	s.user("otto", "OPERATOR").do("POST", "/api/v1/nodes/node-1/shutdown", nil).want(403)
	s.do("POST", "/api/v1/nodes/node-1/shutdown?dryRun=true", nil).want(200).is("action", "stop")
	s.do("POST", "/api/v1/nodes/node-1/shutdown", map[string]string{"reason": strings.Repeat("x", 201)}).want(422).naming("reason")
	s.do("POST", "/api/v1/nodes/node-1/shutdown", `{"why":"x"}`).want(400).naming("why")
	if len(asked) != 0 {
		t.Errorf("asked %+v", asked)
	}
	s.do("POST", "/api/v1/nodes/node-1/shutdown", `{"reason":"the host is replaced"}`).want(202).is("status", "STOPPING").is("nodeId", "node-1")
	s.do("POST", "/api/v1/nodes/node-1/shutdown", nil).want(202)
	if len(asked) != 2 || asked[0].Reason != "the host is replaced" || asked[1].Reason != "" || asked[0].Node != "node-1" || asked[1].Node != "node-1" {
		t.Errorf("asked %+v", asked)
	}
	s.do("GET", "/api/v1/audit?pageSize=2", nil).want(200).is("data.1.action", "node.shutdown").is("data.1.resourceId", "node-1").is("data.1.details", "the host is replaced")
	s.do("GET", "/api/v1/history/node/node-1", nil).want(200)
	s.do("POST", "/api/v1/nodes/node-1/shutdown", `{"reason":"of another"}`).want(409).is("error.code", "CONFLICT").is("error.message", "this is the agent of node node-2")
	s.do("GET", "/api/v1/audit?pageSize=1", nil).want(200).is("data.0.action", "node.shutdown").is("data.0.result", "FAILED")
	agent.Close()
	s.do("POST", "/api/v1/nodes/node-1/shutdown", nil).want(503)
	s.do("GET", "/api/v1/audit?pageSize=1", nil).want(200).is("data.0.action", "node.shutdown").is("data.0.result", "FAILED")
	s.loseNode("node-1")
	s.do("POST", "/api/v1/nodes/node-1/shutdown", nil).want(409).is("error.code", "NODE_NOT_CONNECTED")
	s.do("POST", "/api/v1/nodes/node-9/shutdown", nil).want(404)
}
