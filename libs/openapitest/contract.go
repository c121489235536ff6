// Package openapitest holds requests and answers of tests against an OpenAPI document (3.1):
// what is served is as it is described.
//
// It is stricter than clients need be. An object has the fields that are described and no
// others, unless its schema says otherwise with additionalProperties; a client that lives by
// the document takes a field more.
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

// Contract is a document that requests and answers are held against. It may be used by many
// goroutines. Make it with New.
type Contract struct {
	doc object

	mu       sync.Mutex // guards what follows
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema
}

// New reads a document. It fails when its schemas are none; what is wrong inside of one is told
// by whatever is held against it.
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
func (c *Contract) at(path ...string) object {
	at := c.doc
	for _, key := range path {
		at, _ = at[key].(object)
	}
	return at
}

// Resolved is a part of the document, or what it refers to.
func (c *Contract) Resolved(part any) map[string]any {
	o, _ := part.(object)
	if ref, ok := o["$ref"].(string); ok {
		return c.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return o
}

// Operation is what the document says of a method and a path as it writes it; nil when it
// says nothing.
func (c *Contract) Operation(method, path string) map[string]any {
	op, _ := c.at("paths", path)[strings.ToLower(method)].(object)
	return op
}

// Operations are all that the document describes, by method and path: "GET /a/{b}".
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

// Find is the operation that a path as it is sent leads to, of several the one with the
// fewest parameters; nil when none is described. A parameter {path} at a path's end takes
// all that follows.
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

// leads reports whether a path as it is sent is one that is described.
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

// faults says in what a JSON value is not as a schema describes it; empty when it is. name
// tells the schema from others.
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

// Answer is what is held against the document of an answer.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Answered says in what an answer is not as an operation describes it; empty when it is.
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
	_ = json.Unmarshal(a.Body, &value) // what is no JSON is null, which no schema takes for an object
	return c.faults(fmt.Sprint(op["operationId"], " ", status), described["schema"], value)
}

// Asked says in what a request that was taken is not as an operation describes it; empty when
// it is. body is JSON as text, or a value to be encoded; anything else is not looked at. Nulls
// of a patch take something away, whatever it is.
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

// JSONBody is the schema of the JSON that an operation reads; nil when it reads none.
func (c *Contract) JSONBody(op map[string]any) map[string]any {
	request, _ := op["requestBody"].(object)
	content, _ := request["content"].(object)
	media, _ := content["application/json"].(object)
	schema, _ := media["schema"].(object)
	return schema
}

// spelled is an object with its fields named as they are described: they are taken in any case.
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

// sentJSON is what a test sends as JSON, if it does.
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
