package openapi

import (
	"fmt"
	"strings"
	"testing"
)

// walk visits every value of the document.
func walk(v any, at string, visit func(at string, o object)) {
	switch v := v.(type) {
	case object:
		visit(at, v)
		for k, inner := range v {
			walk(inner, at+"/"+k, visit)
		}
	case []any:
		for n, inner := range v {
			walk(inner, fmt.Sprint(at, "/", n), visit)
		}
	}
}

// follow resolves a reference; nil when the target does not exist.
func follow(doc object, ref string) any {
	var at any = doc
	for _, key := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
		o, ok := at.(object)
		if !ok {
			return nil
		}
		at = o[key]
	}
	return at
}

func TestReferencesResolveAndComponentsAreUsed(t *testing.T) {
	doc, err := Document("")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	walk(doc, "", func(at string, o object) {
		ref, ok := o["$ref"].(string)
		if !ok {
			return
		}
		if used[ref] = true; !strings.HasPrefix(ref, "#/") || follow(doc, ref) == nil {
			t.Errorf("%s: reference %s does not resolve", at, ref)
		}
	})
	for _, kind := range []string{"schemas", "responses", "parameters"} {
		part, _ := follow(doc, "#/components/"+kind).(object)
		for name := range part {
			if ref := "#/components/" + kind + "/" + name; !used[ref] {
				t.Errorf("%s is not referenced", ref)
			}
		}
	}
}

func TestOperationsAreDescribed(t *testing.T) {
	doc, err := Document("")
	if err != nil {
		t.Fatal(err)
	}
	paths, _ := doc["paths"].(object)
	ids := map[any]string{}
	for path, item := range paths {
		for method, v := range item.(object) {
			op, ok := v.(object)
			if !ok {
				continue // the parameters of the path
			}
			name := method + " " + path
			if other, taken := ids[op["operationId"]]; taken || op["operationId"] == nil {
				t.Errorf("%s: operationId %v is also used by %q", name, op["operationId"], other)
			}
			ids[op["operationId"]] = name
			if op["summary"] == nil || op["x-permission"] == nil {
				t.Errorf("%s has no summary, or no x-permission", name)
			}
			done := 0
			for status, r := range op["responses"].(object) {
				if response := r.(object); response["description"] == nil && response["$ref"] == nil {
					t.Errorf("%s: %s has no description", name, status)
				}
				if status < "400" {
					done++
				}
			}
			if later := op["x-later"] == true; later != (done == 0) {
				t.Errorf("%s has %d success responses, but x-later is %v", name, done, later)
			}
		}
	}
}

func TestEveryTagIsInOneTagGroup(t *testing.T) {
	doc, err := Document("")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[any]int{}
	groups, _ := doc["x-tagGroups"].([]any)
	for _, g := range groups {
		tags, _ := g.(object)["tags"].([]any)
		for _, name := range tags {
			shown[name]++
		}
	}
	areas, _ := doc["tags"].([]any)
	for _, a := range areas {
		if name := a.(object)["name"]; shown[name] != 1 {
			t.Errorf("%q is in %d groups of x-tagGroups in openapi.json, want 1", name, shown[name])
		}
	}
	if len(shown) != len(areas) {
		t.Errorf("x-tagGroups has %d tags, want %d", len(shown), len(areas))
	}
}
