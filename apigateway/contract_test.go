package apigateway

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/orreryhq/orrery/apigateway/internal/openapi"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/openapitest"
)

// object is a JSON object of the OpenAPI document.
type object = map[string]any

// contractOf returns the gateway's OpenAPI document. All tests share it.
var contractOf = sync.OnceValues(func() (*openapitest.Contract, error) {
	doc, err := openapi.Document("test")
	if err != nil {
		return nil, err
	}
	return openapitest.New(doc)
})

// operationOf returns the description of a route. It is nil if there is none, which another test
// reports.
func operationOf(c *openapitest.Contract, r server.Route) object {
	return c.Operation(r.Method, documented(r.Path))
}

// documented returns a route's path in the notation of the document.
func documented(path string) string {
	return filled(path, func(param string) string { return "{" + param[1:] + "}" })
}

// answer converts a reply for the check against the document.
func (r *reply) answer() openapitest.Answer {
	return openapitest.Answer{Status: r.status, Header: r.header, Body: []byte(r.raw)}
}

// routeOf returns the route for a request path.
func (s *site) routeOf(method, path string) (best server.Route, ok bool) {
	fixed := func(r server.Route) int {
		return strings.Count(r.Path, "/") - strings.Count(r.Path, "/:") - strings.Count(r.Path, "/*")
	}
	for _, r := range s.routes() {
		if r.Method == method && leads(r, path) && (!ok || fixed(r) > fixed(best)) {
			best, ok = r, true
		}
	}
	return best, ok
}

// described checks a request and its response against the document if a route matches.
func (s *site) described(method, target string, body any, r *reply) {
	s.t.Helper()
	path, query, _ := strings.Cut(target, "?")
	route, ok := s.routeOf(method, path)
	if !ok {
		return
	}
	c, err := contractOf()
	if err != nil {
		s.t.Fatal(err)
	}
	op := operationOf(c, route)
	if op == nil {
		return
	}
	if fault := c.Answered(op, r.answer()); fault != "" {
		s.t.Errorf("%s: %d is not as it is described: %s\n%.800s", r.what, r.status, fault, r.raw)
	}
	if r.status >= http.StatusMultipleChoices {
		return
	}
	values, _ := url.ParseQuery(query)
	if fault := c.Asked(op, method, values, body); fault != "" {
		s.t.Errorf("%s was taken and is not as it is described: %s\n%v", r.what, fault, body)
	}
}

// texts returns a list of strings from the document.
func texts(v any) []string {
	list, _ := v.([]any)
	out := []string{}
	for _, s := range list {
		out = append(out, fmt.Sprint(s))
	}
	slices.Sort(out)
	return out
}

// filled replaces the parameters in a route's path.
func filled(path string, by func(param string) string) string {
	parts := strings.Split(path, "/")
	for n, p := range parts {
		if strings.HasPrefix(p, ":") || strings.HasPrefix(p, "*") {
			parts[n] = by(p)
		}
	}
	return strings.Join(parts, "/")
}

// leads reports whether a request path matches a route.
func leads(r server.Route, path string) bool {
	want, have := strings.Split(r.Path, "/"), strings.Split(path, "/")
	for n, w := range want {
		switch {
		case strings.HasPrefix(w, "*"):
			return true
		case n >= len(have) || !strings.HasPrefix(w, ":") && w != have[n]:
			return false
		}
	}
	return len(want) == len(have)
}
