package apigateway

import (
	"net/http"
	"testing"
)

func TestWhoHasAnObjectAsItIsIsTold304(t *testing.T) {
	s := newSite(t)
	s.group("lobby", nil)
	s.do("POST", "/api/v1/networks", `{"name":"main","lobbyGroup":"lobby"}`).want(201)
	s.do("PUT", "/api/v1/quotas/acme", `{"selector":{"owner":"acme"},"limit":{"memoryMb":100}}`).want(201)
	s.do("PUT", "/api/v1/secrets/db", `{"values":{"a":"b"}}`).want(201)
	s.do("POST", "/api/v1/api-tokens", `{"name":"ci"}`).want(201)
	s.do("POST", "/api/v1/roles", `{"name":"HELPER","permissions":[]}`).want(201)
	id := s.start("lobby")
	for _, path := range []string{
		"/api/v1/groups/lobby", "/api/v1/networks/main", "/api/v1/quotas/acme", "/api/v1/secrets/db", "/api/v1/users/admin", "/api/v1/roles/HELPER",
		"/api/v1/services/" + string(id), "/api/configurations/lobby", "/openapi.json",
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
	etag := s.do("GET", "/api/v1/groups/lobby", nil).want(200).header.Get("ETag")
	s.do("PATCH", "/api/v1/groups/lobby", `{"maxPlayers":7}`, "If-Match", etag).want(200)
	s.do("GET", "/api/v1/groups/lobby", nil, "If-None-Match", etag).want(200).is("maxPlayers", 7)
}
