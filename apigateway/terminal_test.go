package apigateway

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestJSONForATerminalEndsWithANewline(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	raw := func(path, agent string, header ...string) string {
		t.Helper()
		return s.do("GET", path, nil, append(header, "User-Agent", agent)...).raw
	}
	for _, path := range []string{"/api/v1/groups", "/api/v1/groups/lobby", "/api/configurations", "/api/v1/auth/me", "/openapi.json"} {
		plain := raw(path, "Go-http-client/1.1")
		if plain == "" || strings.HasSuffix(plain, "\n") {
			t.Errorf("%s is empty, or ends with a newline for a program: %q", path, plain)
		}
		for _, agent := range []string{"curl/8.5.0", "Wget/1.21", "HTTPie/3.2.2"} {
			if got := raw(path, agent); got != plain+"\n" {
				t.Errorf("%s for %s: %q after %q", path, agent, got, plain)
			}
		}
	}
	if got := raw("/api/v1/nope", "curl/8.5.0"); !strings.HasSuffix(got, "}\n") || strings.HasSuffix(got, "\n\n") {
		t.Errorf("a refusal: %q", got)
	}
	etag := s.do("GET", "/openapi.json", nil).header.Get("ETag")
	if got := s.do("GET", "/openapi.json", nil, "User-Agent", "curl/8.5.0", "If-None-Match", etag).want(304).raw; got != "" {
		t.Errorf("304 with a body: %q", got)
	}
}

func TestAPackedAnswerForATerminalIsOneGzipStream(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 8192})
	s.group("lobby", nil)
	for range 4 {
		s.inside("lobby", "node-1")
	}
	for _, path := range []string{"/api/v1/services", "/api/instances", "/openapi.json"} {
		r, err := s.try("GET", path, nil, "User-Agent", "HTTPie/3.2.2", "Accept-Encoding", "gzip")
		if err != nil {
			t.Fatal(err)
		}
		if got := r.want(200).header.Get("Content-Encoding"); got != "gzip" {
			t.Errorf("%s is encoded as %q", path, got)
		}
		packed := strings.NewReader(r.raw)
		unpacked, err := gzip.NewReader(packed)
		if err != nil {
			t.Fatal(path, err)
		}
		unpacked.Multistream(false)
		if text, err := io.ReadAll(unpacked); err != nil || !json.Valid(text) || packed.Len() > 0 {
			t.Errorf("%s: %d bytes of JSON, then %d more: %v", path, len(text), packed.Len(), err)
		}
	}
}

func TestTheFirstPageSaysWhereToGoFromThere(t *testing.T) {
	t.Parallel()
	s := newSite(t).as("")
	for accept, media := range map[string]string{"text/html,*/*;q=0.8": "text/html", "*/*": "text/plain", "": "text/plain"} {
		r := s.do("GET", "/", nil, "Accept", accept).want(200)
		if !strings.HasPrefix(r.header.Get("Content-Type"), media) {
			t.Errorf("Accept %q: %s", accept, r.header.Get("Content-Type"))
		}
		texts := []string{"Orrery", "/docs", "/openapi.json", "/api/v1/auth/login", "curl -sS"}
		if media == "text/html" { // the dashboard
			texts = []string{"Orrery", "/docs", "needs JavaScript"}
		}
		for _, text := range texts {
			if !strings.Contains(r.raw, text) {
				t.Errorf("%s without %s:\n%s", media, text, r.raw)
			}
		}
	}
	s.do("POST", "/", nil).want(405)
}
