package openapitest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// shelf is a document with a few routes.
const shelf = `{
  "paths": {
    "/books": {
      "parameters": [],
      "post": {
        "operationId": "addBook",
        "parameters": [{ "$ref": "#/components/parameters/DryRun" }],
        "requestBody": { "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Book" } } } },
        "responses": {
          "201": { "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Book" } } } },
          "default": { "$ref": "#/components/responses/Refused" }
        }
      },
      "patch": {
        "operationId": "changeBooks",
        "requestBody": { "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Book" } } } }
      }
    },
    "/books/{name}": { "delete": { "operationId": "removeBook", "responses": { "204": {} } } },
    "/books/newest": { "get": { "operationId": "newest" } },
    "/books/{name}/pages/{path}": { "get": { "operationId": "page" } }
  },
  "components": {
    "parameters": { "DryRun": { "name": "dryRun", "in": "query" } },
    "responses": { "Refused": { "content": { "application/json": { "schema": { "type": "object", "required": ["error"], "properties": { "error": { "type": "string" } } } } } } },
    "schemas": {
      "Book": { "type": "object", "required": ["name", "tags"], "properties": { "name": { "type": "string" }, "tags": { "type": "array", "items": { "$ref": "#/components/schemas/Tag" } } } },
      "Tag": { "type": "object", "properties": { "word": { "type": "string" } } }
    }
  }
}`

func contractOf(t *testing.T) *Contract {
	t.Helper()
	var doc map[string]any
	err := json.Unmarshal([]byte(shelf), &doc)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(doc)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func answer(status int, media, body string) Answer {
	return Answer{Status: status, Header: http.Header{"Content-Type": {media}}, Body: []byte(body)}
}

func TestViolationsAreFound(t *testing.T) {
	c := contractOf(t)
	add, remove := c.Operation("POST", "/books"), c.Operation("DELETE", "/books/{name}")
	const book, media = `{"name":"a","tags":[{"word":"b"}]}`, "application/json; charset=utf-8"
	for name, fault := range map[string]string{
		"an answer":      c.Answered(add, answer(201, media, book)),
		"a refusal":      c.Answered(add, answer(418, media, `{"error":"x"}`)),
		"nothing":        c.Answered(remove, Answer{Status: 204}),
		"a request":      c.Asked(add, "POST", url.Values{"dryRun": {"true"}, "ticket": {"x"}}, book),
		"another case":   c.Asked(add, "POST", nil, `{"Name":"a","TAGS":[]}`),
		"bytes":          c.Asked(add, "POST", nil, []byte(book)),
		"a value":        c.Asked(add, "POST", nil, map[string]any{"name": "a", "tags": []string{}}),
		"no JSON at all": c.Asked(add, "POST", nil, `x`),
		"a patch's null": c.Asked(c.Operation("PATCH", "/books"), "PATCH", nil, `{"name":"a","tags":[],"x":null}`),
	} {
		if fault != "" {
			t.Errorf("%s: %s", name, fault)
		}
	}
	for name, fault := range map[string]string{
		"another status":      c.Answered(add, answer(202, media, book)),
		"another type":        c.Answered(add, answer(201, "text/plain", book)),
		"a field more":        c.Answered(add, answer(201, media, strings.Replace(book, "{", `{"x":1,`, 1))),
		"one inside of a ref": c.Answered(add, answer(201, media, strings.Replace(book, `"word"`, `"term"`, 1))),
		"a field less":        c.Answered(add, answer(201, media, `{"name":"a"}`)),
		"a wrong type":        c.Answered(add, answer(201, media, `{"name":"a","tags":null}`)),
		"no envelope":         c.Answered(add, answer(404, media, `{"message":"x"}`)),
		"no body":             c.Answered(add, answer(201, media, ``)),
		"a body for nothing":  c.Answered(remove, Answer{Status: 204, Body: []byte("x")}),
		"a refusal of none":   c.Answered(remove, answer(404, media, `{"error":"x"}`)),
		"a request's field":   c.Asked(add, "POST", nil, `{"name":"a","tags":[],"zzz":1}`),
		"its parameter":       c.Asked(add, "POST", url.Values{"zzz": {"1"}}, book),
	} {
		if fault == "" {
			t.Errorf("%s is not found", name)
		}
	}
}

func TestFindPrefersFewestParameters(t *testing.T) {
	c := contractOf(t)
	for sent, want := range map[string]any{
		"GET /books/newest": "newest", "DELETE /books/newest": "removeBook", "DELETE /books/a": "removeBook", "GET /books/a/pages/b/c": "page",
		"GET /books/a/pages": nil, "GET /books/a": nil, "POST /books/a/b": nil, "POST /books": "addBook", "PARAMETERS /books": nil,
	} {
		method, path, _ := strings.Cut(sent, " ")
		if got := c.Find(method, path)["operationId"]; got != want {
			t.Errorf("%s leads to %v, want %v", sent, got, want)
		}
	}
	if all := c.Operations(); len(all) != 5 || all["GET /books/{name}/pages/{path}"] == nil {
		t.Errorf("operations %v", all)
	}
}
