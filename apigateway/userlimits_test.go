package apigateway

import (
	"strings"
	"testing"
)

func TestTicketsAreLimitedPerUserByDefault(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.start("lobby")
	vera := s.user("vera", "ADMIN")
	paths := []string{
		"/api/v1/events/ticket", "/api/console/ticket", "/api/v1/system/logs/ticket",
		"/api/v1/services/lobby-1/console/ticket", "/api/v1/instances/lobby-1/console/ticket",
	}
	for n := range defaultTickets {
		vera.do("POST", paths[n%len(paths)], nil).want(200)
	}
	before := s.revision()
	for _, path := range paths {
		r := vera.do("POST", path, nil).want(429).naming("too many tickets")
		if r.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", path)
		}
	}
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused ticket wrote something: %v", keys)
	}
	vera.do("GET", "/api/v1/groups", nil).want(200)
	s.do("POST", "/api/v1/events/ticket", nil).want(200)
}

func TestEveryTicketOfAUserIsCounted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, r := range s.gateway.frame.Routes() {
		if strings.HasSuffix(r.Path, "/ticket") && !r.Demand.Self() && !r.Tickets {
			t.Errorf("%s %s does not count its tickets", r.Method, r.Path)
		}
	}
}

func TestEventStreamsAreLimitedPerUserByDefault(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	vera := s.user("vera", "VIEWER")
	const most = 100
	for range most {
		vera.stream("/api/v1/events/stream")
	}
	vera.do("GET", "/api/v1/events/stream", nil).want(429).is("error.code", "TOO_MANY_STREAMS")
	s.stream("/api/v1/events/stream")
}
