package apigateway

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/apigateway/internal/server"
)

func TestEveryRouteIsDescribedAndNothingElseIs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c, err := contractOf()
	if err != nil {
		t.Fatal(err)
	}
	operations := c.Operations()
	for _, r := range s.routes() {
		name := r.Method + " " + documented(r.Path)
		if op, described := operations[name]; described {
			asksFor(t, name, op, r.Demand)
		} else {
			t.Errorf("%s is not described", name)
		}
		delete(operations, name)
	}
	if len(operations) > 0 {
		t.Errorf("described, and no routes: %v", slices.Sorted(maps.Keys(operations)))
	}
}

// asksFor checks that an operation documents the authentication that the route requires.
func asksFor(t *testing.T, name string, op object, d server.Demand) {
	t.Helper()
	want := []string{}
	for _, p := range d.Permissions() {
		want = append(want, string(p))
	}
	slices.Sort(want)
	if got := texts(op["x-permission"]); !slices.Equal(got, want) {
		t.Errorf("%s: x-permission is %v, the route wants %v", name, got, want)
	}
	schemes := func(names ...string) any {
		list := []any{}
		for _, n := range names {
			list = append(list, object{n: []any{}})
		}
		return list
	}
	var security any // the default: a token
	switch {
	case d.Open():
		security = schemes()
	case reflect.DeepEqual(d, server.Ticketed):
		security = schemes("bearer", "ticket")
	case d.Self() && len(want) == 0:
		security = schemes("instance")
	case d.Self():
		security = schemes("bearer", "instance")
	}
	if !reflect.DeepEqual(op["security"], security) {
		t.Errorf("%s: security is %v, want %v", name, op["security"], security)
	}
}

func TestTheDocumentIsServedAndKnownByItsETag(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Version = "1.2.3" }).as("")
	r := s.do("GET", "/openapi.json", nil).want(200).is("openapi", "3.1.0").is("info.version", "1.2.3")
	etag := r.header.Get("ETag")
	s.do("GET", "/openapi.json", nil, "If-None-Match", etag).want(304)
	s.do("GET", "/openapi.json", nil, "If-None-Match", `"other"`).want(200)
	if yaml := s.do("GET", "/openapi/openapi.yaml", nil).want(200); yaml.raw != r.raw || !strings.HasPrefix(yaml.header.Get("Content-Type"), "application/yaml") {
		t.Errorf("the document that Universe's path has is another: %.100s", yaml.raw)
	}
	for _, path := range []string{"/docs", "/openapi", "/docs/docs.js", "/docs/docs.css"} {
		page := s.do("GET", path, nil).want(200)
		if policy := page.header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'; script-src 'self'") {
			t.Errorf("%s: policy %q", path, policy)
		}
		for _, foreign := range []string{"http://", "https://", "src=\"//", "innerHTML"} {
			if strings.Contains(page.raw, foreign) {
				t.Errorf("%s has %s", path, foreign)
			}
		}
	}
}
