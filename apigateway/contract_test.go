package apigateway

import (
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/orreryhq/orrery/apigateway/internal/openapi"
	"github.com/orreryhq/orrery/apigateway/internal/server"
)

// object is a JSON object of the document.
type object = map[string]any

// contract is the document that requests and answers are held against. In it objects have
// the fields that are described and no others.
type contract struct {
	doc object

	mu       sync.Mutex
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema
}

// contractOf is the document of the gateway; all tests share it.
var contractOf = sync.OnceValues(func() (*contract, error) {
	doc, err := openapi.Document("test")
	if err != nil {
		return nil, err
	}
	c := &contract{doc: doc, compiler: jsonschema.NewCompiler(), compiled: map[string]*jsonschema.Schema{}}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	c.compiler.AssertFormat()
	defs := object{}
	for name, s := range c.at("components", "schemas") {
		defs[name] = closed(s)
	}
	return c, c.compiler.AddResource(schemasURL, object{"$defs": defs})
})

// schemasURL is what the described schemas are compiled as.
const schemasURL = "https://orrery.test/schemas"

// closed is a schema whose objects have no fields that are not described, with references
// that lead to schemasURL.
func closed(schema any) any {
	s, ok := schema.(object)
	if !ok {
		return schema
	}
	out := maps.Clone(s)
	if ref, ok := s["$ref"].(string); ok {
		out["$ref"] = schemasURL + "#/$defs/" + strings.TrimPrefix(ref, "#/components/schemas/")
	}
	if properties, ok := s["properties"].(object); ok {
		inner := object{}
		for name, p := range properties {
			inner[name] = closed(p)
		}
		out["properties"] = inner
		if _, open := s["additionalProperties"]; !open {
			out["additionalProperties"] = false
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if inner, ok := out[key]; ok {
			out[key] = closed(inner)
		}
	}
	if choice, ok := s["oneOf"].([]any); ok {
		var inner []any
		for _, o := range choice {
			inner = append(inner, closed(o))
		}
		out["oneOf"] = inner
	}
	return out
}

// at is an object of the document; empty where there is none.
func (c *contract) at(path ...string) object {
	at := c.doc
	for _, key := range path {
		at, _ = at[key].(object)
	}
	return at
}

// resolved follows a reference within the document.
func (c *contract) resolved(v any) object {
	o, _ := v.(object)
	if ref, ok := o["$ref"].(string); ok {
		return c.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return o
}

// operation describes a route; nil when nothing does.
func (c *contract) operation(r server.Route) object {
	return c.at("paths", documented(r.Path), strings.ToLower(r.Method))
}

// documented is a route's path as the document writes it.
func documented(path string) string {
	return filled(path, func(param string) string { return "{" + param[1:] + "}" })
}

// faults says in what a JSON value is not as a schema describes it; empty when it is. name
// tells the schema from others.
func (c *contract) faults(name string, schema, value any) string {
	c.mu.Lock()
	s, ok := c.compiled[name]
	if !ok {
		at := "https://orrery.test/" + url.PathEscape(name)
		err := c.compiler.AddResource(at, closed(schema))
		if err == nil {
			s, err = c.compiler.Compile(at)
		}
		if err != nil {
			c.mu.Unlock()
			return err.Error()
		}
		c.compiled[name] = s
	}
	c.mu.Unlock()
	if err := s.Validate(value); err != nil {
		return err.Error()
	}
	return ""
}

// answered says in what an answer is not as the operation describes it.
func (c *contract) answered(op object, r *reply) string {
	responses, _ := op["responses"].(object)
	status := fmt.Sprint(r.status)
	response, ok := responses[status]
	if !ok && r.status >= http.StatusBadRequest {
		status = "default"
		response, ok = responses[status]
	}
	if !ok {
		return "the status is not described"
	}
	content, _ := c.resolved(response)["content"].(object)
	if content == nil {
		if r.raw != "" {
			return "no body is described"
		}
		return ""
	}
	media, _, err := mime.ParseMediaType(r.header.Get("Content-Type"))
	described, ok := content[media].(object)
	if err != nil || !ok {
		return fmt.Sprintf("the type %q is not described", r.header.Get("Content-Type"))
	}
	if media != "application/json" {
		return ""
	}
	return c.faults(fmt.Sprint(op["operationId"], " ", status), described["schema"], r.body)
}

// asked says in what a request that was taken is not as the operation describes it. Nulls of
// a patch take something away, whatever it is.
func (c *contract) asked(op object, method string, query url.Values, body any) string {
	known := map[string]bool{"ticket": true, "minRevision": true} // of every route
	parameters, _ := op["parameters"].([]any)
	for _, p := range parameters {
		name, _ := c.resolved(p)["name"].(string)
		known[name] = true
	}
	for name := range query {
		if !known[name] {
			return "the parameter " + name + " is not described"
		}
	}
	request, _ := op["requestBody"].(object)
	content, _ := request["content"].(object)
	described, ok := content["application/json"].(object)
	value, sent := sentJSON(body)
	if !ok || !sent {
		return ""
	}
	if method == http.MethodPatch {
		value = withoutNulls(value)
	}
	return c.faults(fmt.Sprint(op["operationId"], " asked"), described["schema"], c.spelled(described["schema"], value))
}

// spelled is an object with its fields named as they are described: they are taken in any case.
func (c *contract) spelled(schema, value any) any {
	sent, ok := value.(object)
	if !ok {
		return value
	}
	properties, _ := c.resolved(schema)["properties"].(object)
	out := object{}
	for given, v := range sent {
		for name := range properties {
			if strings.EqualFold(given, name) {
				given = name
			}
		}
		out[given] = v
	}
	return out
}

// sentJSON is what a test sends as JSON, if it does.
func sentJSON(body any) (value any, ok bool) {
	text, isText := body.(string)
	if !isText {
		b, err := json.Marshal(body)
		if body == nil || err != nil {
			return nil, false
		}
		text = string(b)
	}
	return value, json.Unmarshal([]byte(text), &value) == nil
}

func withoutNulls(v any) any {
	o, ok := v.(object)
	if !ok {
		return v
	}
	out := object{}
	for k, v := range o {
		if v != nil {
			out[k] = withoutNulls(v)
		}
	}
	return out
}

// routeOf is the route that a path as it is sent leads to.
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

// described holds a request and its answer against the document. What the document does not
// describe yet is listed elsewhere.
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
	op := c.operation(route)
	if op == nil {
		return
	}
	if fault := c.answered(op, r); fault != "" {
		s.t.Errorf("%s: %d is not as it is described: %s\n%.800s", r.what, r.status, fault, r.raw)
	}
	if r.status >= http.StatusMultipleChoices {
		return
	}
	values, _ := url.ParseQuery(query)
	if fault := c.asked(op, method, values, body); fault != "" {
		s.t.Errorf("%s was taken and is not as it is described: %s\n%v", r.what, fault, body)
	}
}

// operations are all that the document describes, by method and path.
func (c *contract) operations() map[string]object {
	out := map[string]object{}
	for path, item := range c.at("paths") {
		for method, op := range item.(object) {
			if method != "parameters" {
				out[strings.ToUpper(method)+" "+path], _ = op.(object)
			}
		}
	}
	return out
}

// texts are a list of strings of the document.
func texts(v any) []string {
	list, _ := v.([]any)
	out := []string{}
	for _, s := range list {
		out = append(out, fmt.Sprint(s))
	}
	slices.Sort(out)
	return out
}

// filled replaces the parameters of a route's path.
func filled(path string, by func(param string) string) string {
	parts := strings.Split(path, "/")
	for n, p := range parts {
		if strings.HasPrefix(p, ":") || strings.HasPrefix(p, "*") {
			parts[n] = by(p)
		}
	}
	return strings.Join(parts, "/")
}

// leads reports whether a path as it is sent leads to a route.
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
