// Package openapitest checks requests and answers in tests against an OpenAPI 3.1 document.
//
// It is stricter than clients need to be. An object may only have the described fields, unless its
// schema sets additionalProperties, whereas clients must accept additional fields.
package openapitest

import (
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// object is a JSON object of the document.
type object = map[string]any

// Contract is a document to check requests and answers against. It is safe for concurrent use. New
// creates it.
type Contract struct {
	doc object

	mu       sync.Mutex // guards what follows
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema
}

// New returns the contract of a document. It fails if the schemas cannot be read. Mistakes inside
// a schema are reported when it is used.
func New(doc map[string]any) (*Contract, error) {
	c := &Contract{doc: doc, compiler: jsonschema.NewCompiler(), compiled: map[string]*jsonschema.Schema{}}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	c.compiler.AssertFormat()
	defs := object{}
	for name, s := range c.at("components", "schemas") {
		defs[name] = closed(s)
	}
	return c, c.compiler.AddResource(schemasURL, object{"$defs": defs})
}

// schemasURL is the base URL under which the schemas are compiled.
const schemasURL = "https://orrery.test/schemas"

// closed returns a schema whose objects allow only described fields, with references that point to
// schemasURL.
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

// at returns an object of the document, nil if it does not exist.
func (c *Contract) at(path ...string) object {
	at := c.doc
	for _, key := range path {
		at, _ = at[key].(object)
	}
	return at
}

// Resolved returns a part of the document, following its reference if it is one.
func (c *Contract) Resolved(part any) map[string]any {
	o, _ := part.(object)
	if ref, ok := o["$ref"].(string); ok {
		return c.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return o
}

// Operation returns the description of a method and a path template, or nil.
func (c *Contract) Operation(method, path string) map[string]any {
	op, _ := c.at("paths", path)[strings.ToLower(method)].(object)
	return op
}

// Operations returns all described operations by method and path, e.g. "GET /a/{b}".
func (c *Contract) Operations() map[string]map[string]any {
	out := map[string]map[string]any{}
	for path, item := range c.at("paths") {
		item, _ := item.(object)
		for method, op := range item {
			if op, ok := op.(object); ok {
				out[strings.ToUpper(method)+" "+path] = op
			}
		}
	}
	return out
}

// Find returns the operation that matches a request path, the one with the fewest parameters if
// several do, or nil. A parameter {path} at the end of a path matches the rest.
func (c *Contract) Find(method, path string) (op map[string]any) {
	best := -1
	for described := range c.at("paths") {
		found := c.Operation(method, described)
		fixed := strings.Count(described, "/") - strings.Count(described, "/{")
		if found != nil && fixed > best && leads(described, path) {
			op, best = found, fixed
		}
	}
	return op
}

// leads reports whether a request path matches a described path.
func leads(described, path string) bool {
	want, have := strings.Split(described, "/"), strings.Split(path, "/")
	for n, w := range want {
		switch {
		case n >= len(have):
			return false
		case w == "{path}" && n == len(want)-1:
			return true
		case !strings.HasPrefix(w, "{") && w != have[n]:
			return false
		}
	}
	return len(want) == len(have)
}

// faults returns how a JSON value violates a schema, or "". name identifies the schema in the
// cache.
func (c *Contract) faults(name string, schema, value any) string {
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

// Answer is a response to check.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Answered returns how an answer violates the description of its operation, or "".
func (c *Contract) Answered(op map[string]any, a Answer) string {
	responses, _ := op["responses"].(object)
	status := fmt.Sprint(a.Status)
	response, ok := responses[status]
	if !ok && a.Status >= http.StatusBadRequest {
		status = "default"
		response, ok = responses[status]
	}
	if !ok {
		return "the status is not described"
	}
	content, _ := c.Resolved(response)["content"].(object)
	if content == nil {
		if len(a.Body) > 0 {
			return "no body is described"
		}
		return ""
	}
	media, _, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	described, ok := content[media].(object)
	if err != nil || !ok {
		return fmt.Sprintf("the type %q is not described", a.Header.Get("Content-Type"))
	}
	if media != "application/json" {
		return ""
	}
	var value any
	_ = json.Unmarshal(a.Body, &value) // invalid JSON becomes null, which no object schema accepts
	return c.faults(fmt.Sprint(op["operationId"], " ", status), described["schema"], value)
}

// Asked returns how an accepted request violates the description of its operation, or "". body is
// JSON text or a value to encode; other bodies are not checked. Nulls in a PATCH are ignored,
// because they remove a field of any type.
func (c *Contract) Asked(op map[string]any, method string, query url.Values, body any) string {
	known := map[string]bool{"ticket": true, "minRevision": true} // of every route
	parameters, _ := op["parameters"].([]any)
	for _, p := range parameters {
		name, _ := c.Resolved(p)["name"].(string)
		known[name] = true
	}
	for name := range query {
		if !known[name] {
			return "the parameter " + name + " is not described"
		}
	}
	schema := c.JSONBody(op)
	value, sent := sentJSON(body)
	if schema == nil || !sent {
		return ""
	}
	if method == http.MethodPatch {
		value = withoutNulls(value)
	}
	return c.faults(fmt.Sprint(op["operationId"], " asked"), schema, c.spelled(schema, value))
}

// JSONBody returns the schema of the JSON body of an operation, or nil.
func (c *Contract) JSONBody(op map[string]any) map[string]any {
	request, _ := op["requestBody"].(object)
	content, _ := request["content"].(object)
	media, _ := content["application/json"].(object)
	schema, _ := media["schema"].(object)
	return schema
}

// spelled returns an object with its fields renamed to the described case, because the API ignores
// case.
func (c *Contract) spelled(schema, value any) any {
	sent, ok := value.(object)
	if !ok {
		return value
	}
	properties, _ := c.Resolved(schema)["properties"].(object)
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

// sentJSON returns the JSON value that a test sends. ok is false if it sends none.
func sentJSON(body any) (value any, ok bool) {
	text, isText := body.(string)
	if raw, isRaw := body.([]byte); isRaw {
		text, isText = string(raw), true
	}
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
