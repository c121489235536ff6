package apigateway

import (
	"net/http"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestWhoHasAnObjectAsItIsIsTold304(t *testing.T) {
	s := newSite(t)
	s.group("lobby", nil)
	s.do("POST", "/api/v1/networks", `{"name":"main","lobbyGroup":"lobby"}`).want(201)
	s.do("PUT", "/api/v1/secrets/db", `{"values":{"a":"b"}}`).want(201)
	token, _ := s.do("POST", "/api/v1/api-tokens", `{"name":"ci"}`).want(201).field("id").(string)
	for _, path := range []string{
		"/api/v1/networks/main", "/api/v1/secrets/db", "/api/v1/api-tokens/" + token, "/api/configurations/lobby", "/openapi.json",
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

func TestWhatHasFiguresOfTheMomentIsNeverToldToBeTheSame(t *testing.T) {
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
