package apigateway

import (
	"regexp"
	"strings"
	"testing"
)

// filesOf returns the paths of the dashboard's files that a text names.
func filesOf(text string) []string {
	return regexp.MustCompile(`/ui/[0-9a-f]{16}/[\w./-]+`).FindAllString(text, -1)
}

func TestTheDashboardIsServedToBrowsers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.as("").do("GET", "/", nil, "Accept", "*/*").want(200).naming("orrery login http://HOST:PORT")
	page := s.as("").do("GET", "/", nil, "Accept", "text/html,*/*").want(200)
	const policy = "default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
	if got := page.header.Get("Content-Security-Policy"); got != policy {
		t.Errorf("policy %q", got)
	}
	files := filesOf(page.raw)
	if len(files) < 4 {
		t.Fatalf("the page names %v", files)
	}
	for _, path := range files {
		f := s.as("").do("GET", path, nil).want(200)
		if got := f.header.Get("Cache-Control"); !strings.Contains(got, "immutable") {
			t.Errorf("%s: Cache-Control %q", path, got)
		}
		old := strings.Replace(path, path[4:20], "0123456789abcdef", 1)
		if got := s.as("").do("GET", old, nil).want(200).header.Get("Cache-Control"); got != "no-cache" {
			t.Errorf("%s: Cache-Control %q", old, got)
		}
		for _, foreign := range []string{"http://", "https://", "innerHTML", "eval("} {
			if strings.Contains(strings.ReplaceAll(f.raw, "http://www.w3.org/2000/svg", ""), foreign) {
				t.Errorf("%s has %s", path, foreign)
			}
		}
	}
	s.as("").do("GET", files[0], nil, "If-None-Match", s.as("").do("GET", files[0], nil).header.Get("ETag")).want(304)
	for _, path := range []string{"/ui/", "/ui/none.js", "/ui/..%2fgo.mod", "/ui/0123456789abcdef/none.js", "/groups"} {
		s.as("").do("GET", path, nil).want(404).is("error.code", "NOT_FOUND")
	}
}

func TestGroupsAreWrittenAsYAML(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("PUT", "/api/v1/groups/lobby", "command: exec cat\nminInstances: 2\nenv:\n  A: \"1\"\n", "Content-Type", "application/yaml").want(201).is("minInstances", 2).is("env.A", "1")
	s.do("PATCH", "/api/v1/groups/lobby", "minInstances: 3", "Content-Type", "application/yaml; charset=utf-8").want(200).is("minInstances", 3)
	s.do("PATCH", "/api/v1/groups/lobby", "minInstance: 3", "Content-Type", "application/yaml").want(400).naming("minInstance")
	s.do("PATCH", "/api/v1/groups/lobby", "a: [", "Content-Type", "application/yaml").want(400).naming("the body is not valid YAML")
	s.do("PATCH", "/api/v1/groups/lobby", "minInstances: 1", "Content-Type", "text/plain").want(415).naming("application/yaml")
}
