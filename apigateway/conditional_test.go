package apigateway

import (
	"net/http"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

func TestMatchingETagReturns304(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.do("POST", "/api/v1/networks", `{"name":"main","lobbyGroup":"lobby"}`).want(201)
	token, _ := s.do("POST", "/api/v1/api-tokens", `{"name":"ci"}`).want(201).field("id").(string)
	for _, path := range []string{
		"/api/v1/networks/main", "/api/v1/api-tokens/" + token, "/openapi.json",
	} {
		read := s.do("GET", path, nil).want(200)
		etag := read.header.Get("ETag")
		if etag == "" {
			t.Errorf("%s has no ETag", path)
			continue
		}
		same := s.do("GET", path, nil, "If-None-Match", etag)
		if same.status != http.StatusNotModified || same.raw != "" || same.header.Get("ETag") != etag {
			t.Errorf("%s with its ETag: %d %q, ETag %q", path, same.status, same.raw, same.header.Get("ETag"))
		}
		if s.do("GET", path, nil, "If-None-Match", `"1"`).want(200).raw == "" {
			t.Errorf("%s with another ETag has no body", path)
		}
	}
	etag := s.do("GET", "/api/v1/networks/main", nil).want(200).header.Get("ETag")
	s.do("PUT", "/api/v1/networks/main", `{"lobbyGroup":"lobby","kickMessage":"later"}`, "If-Match", etag).want(200)
	s.do("GET", "/api/v1/networks/main", nil, "If-None-Match", etag).want(200).is("kickMessage", "later")
}

func TestLiveFiguresNeverReturn304(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.node("n1", fleet.Resources{MemoryMiB: 8192, CPU: 400})
	id := s.start("lobby")
	s.hold(id, "n1", fleet.Resources{})
	service := "/api/v1/services/" + string(id)
	read := map[string]string{}
	for _, path := range []string{"/api/v1/groups/lobby", service} {
		read[path] = s.do("GET", path, nil).want(200).header.Get("ETag")
	}
	s.status(id, "n1", fleet.Status{Generation: 1, State: fleet.Online})
	s.do("GET", service, nil, "If-None-Match", read[service]).want(200).is("state", "RUNNING")
	s.do("GET", "/api/v1/groups/lobby", nil, "If-None-Match", read["/api/v1/groups/lobby"]).want(200).is("runningInstances", 1)
}

func TestPartialETagNeverReturns304(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	admin, vera := s.site, s.user("vera", "VIEWER")
	s.drop("default/lobby", map[string]string{"a.txt": "a"})
	s.do("PUT", "/api/v1/secrets/db", `{"value":"x"}`).want(201)
	s.defining("lobby", secretVariable("DB", content.ScopeGroup), content.Variable{Key: "KEY", Type: content.VariableString, Scope: content.ScopeGroup, Visibility: "ADMIN"})
	s.group("lobby", map[string]any{"templates": []string{"lobby"}, "variableValues": map[string]string{"KEY": "k"}})
	const secret, configuration, file = "/api/v1/secrets/db", "/api/configurations/lobby", "/api/v1/templates/lobby/files/content?path=a.txt"
	known := func(s *site, path string) func() *reply {
		etag := s.do("GET", path, nil).want(200).header.Get("ETag")
		if etag == "" {
			t.Errorf("%s has no ETag, which If-Match wants", path)
		}
		return func() *reply { return s.do("GET", path, nil, "If-None-Match", etag) }
	}
	used, body := known(admin, secret), known(admin, file)
	s.do("PATCH", "/api/v1/groups/lobby", `{"variableValues":{"DB":"secret:db"}}`).want(200)
	used().want(200).is("usedBy", []string{"group lobby"})

	promoted := known(vera, configuration)
	promoted().want(200).is("properties.KEY", content.Hidden)
	s.do("PATCH", "/api/v1/users/vera", `{"role":"ADMIN"}`).want(200)
	promoted().want(200).is("properties.KEY", "k")

	was := body().want(200).field("version")
	s.drop("default/lobby", map[string]string{"b.txt": "b"})
	if r := body().want(200); r.field("version") == was {
		t.Errorf("the version is still %v", was)
	}
	const download = "/api/v1/templates/lobby/files/download?path=a.txt"
	same := s.do("GET", download, nil, "If-None-Match", s.do("GET", download, nil).want(200).header.Get("ETag")).want(304)
	if same.raw != "" {
		t.Errorf("a file that is known is sent: %q", same.raw)
	}
}
