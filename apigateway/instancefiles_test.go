package apigateway

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/nodeagent/client"
)

func TestFilesOfAnInstanceAreShownAsItsAgentReadsThem(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	agent := s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	id := s.start("lobby")
	s.do("GET", "/api/v1/services/lobby-1/files/content?path=a", nil).want(404).is("error.code", "FILE_NOT_FOUND")
	s.status(id, "node-1", fleet.Status{State: fleet.Stopped})
	asked := ""
	agent.mu.Lock()
	agent.more = func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.RawQuery
		base := "/v1/instances/" + string(id) + "/files"
		refuse := func(k errs.Kind, field string) {
			wire.Encode(w, wire.Internal, "", &errs.Error{Kind: k, Field: field, Message: "it says why"})
		}
		switch path := r.URL.Query().Get("path"); {
		case r.URL.Path == base:
			_ = json.NewEncoder(w).Encode(client.Directory{Entries: []client.FileEntry{{Name: "logs", Dir: true}, {Name: "a", Size: 3}, {Name: "pipe", Other: true}}, More: true})
		case r.URL.Path != base+"/content":
			http.NotFound(w, r)
		case path == "none":
			refuse(errs.NotFound, "path")
		case path == "../x":
			refuse(errs.Invalid, "path")
		case path == "logs":
			refuse(errs.Conflict, "path")
		case path == "secret":
			refuse(errs.Conflict, "")
		case path == "gone":
			refuse(errs.NotFound, "")
		case path == "data":
			_ = json.NewEncoder(w).Encode(client.FileContent{Size: 9, Binary: true})
		default:
			_ = json.NewEncoder(w).Encode(client.FileContent{Text: "a=b", Size: 9, Cut: true})
		}
	}
	agent.mu.Unlock()
	s.do("GET", "/api/v1/services/lobby-1/files?path=logs", nil).want(200).is("path", "logs").is("truncated", true).
		is("entries.0.isDirectory", true).is("entries.1.size", 3).is("entries.1.isFile", true).is("entries.1.modifiedAt", nil).is("entries.2.isFile", false)
	s.do("GET", "/api/v1/instances/"+string(id)+"/files", nil).want(200)
	r := s.do("GET", "/api/v1/services/lobby-1/files/content?path=server.properties", nil).want(200).is("content", "a=b").is("totalSizeBytes", 9).is("truncated", true)
	if asked != "maxBytes=65536&path=server.properties&tail=false" || r.header.Get("Cache-Control") != "no-store" {
		t.Errorf("asked %s, answered %v", asked, r.header)
	}
	s.do("GET", "/api/v1/instances/lobby-1/files/content?path=a&maxBytes=99999999&tail=true", nil).want(200)
	if asked != "maxBytes=1048576&path=a&tail=true" {
		t.Errorf("asked %s", asked)
	}
	for path, want := range map[string]struct {
		status int
		code   string
	}{
		"none": {404, "FILE_NOT_FOUND"}, "../x": {400, "PATH_OUTSIDE_INSTANCE"}, "logs": {400, "NOT_REGULAR_FILE"},
		"data": {415, "BINARY_FILE"}, "secret": {409, "CONFLICT"}, "gone": {404, "INSTANCE_NOT_FOUND"},
	} {
		s.do("GET", "/api/v1/services/lobby-1/files/content?path="+path, nil).want(want.status).is("error.code", want.code)
	}
	s.do("GET", "/api/v1/services/lobby-9/files/content?path=a", nil).want(404).is("error.code", "INSTANCE_NOT_FOUND")
	s.do("GET", "/api/v1/services/lobby-1/files/content", nil).want(400).naming("path")
	s.do("GET", "/api/v1/services/lobby-1/files/content?path=a&tail=maybe", nil).want(400).naming("tail")
	s.do("GET", "/api/v1/services/lobby-1/files/content?path=a&maxBytes=much", nil).want(400).naming("maxBytes")
	s.do("POST", "/api/v1/roles", `{"name":"WATCHER","permissions":["instances.view"]}`).want(201)
	s.user("watcher", "WATCHER").do("GET", "/api/v1/services/lobby-1/files/content?path=a", nil).want(403)
	s.loseNode("node-1")
	s.do("GET", "/api/v1/services/lobby-1/files/content?path=a", nil).want(503).is("error.code", "DAEMON_UNREACHABLE")
}
