package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/kinds"
)

// Set sets a field of the document from a text such as minInstances=2, limits.processes=50,
// labels.team=a, nodes=a,b or readiness={"type":"port"}. The type of the field decides how the value
// is read: a text needs no quotes, a list of texts may have commas, and everything else is JSON.
func (d *Document) Set(assignment string) error {
	path, text, ok := strings.Cut(assignment, "=")
	if !ok || path == "" {
		return fmt.Errorf("%q is not FIELD=VALUE", assignment)
	}
	if d.Fields == nil {
		d.Fields = map[string]any{}
	}
	return set(d.Object(), d.Fields, path, text)
}

// set walks along the path into the objects and sets the last field.
func set(kind *kinds.Kind, object map[string]any, path, text string) error {
	t := kind.Request
	parts := strings.Split(path, ".")
	for i := 0; ; i++ {
		name, last := parts[i], i == len(parts)-1
		next, err := fieldType(kind, t, name, i == 0)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if i == 0 && name == kind.KindField && name != "" {
			name = apiKindField
		}
		if t.Kind() == reflect.Map { // its keys may have dots
			name, last = strings.Join(parts[i:], "."), true
		}
		if last {
			value, err := parseValue(next, text)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			object[name] = value
			return nil
		}
		inner, ok := object[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			object[name] = inner
		}
		object, t = inner, next
	}
}

// fieldType returns the type of a field of an object type.
func fieldType(kind *kinds.Kind, t reflect.Type, name string, top bool) (reflect.Type, error) {
	if t.Kind() == reflect.Map {
		return plain(t.Elem()), nil
	}
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("there is nothing below it")
	}
	known := fieldTypes(t)
	if top {
		delete(known, kind.NameField)
		if kind.KindField != "" {
			known[kind.KindField] = known[apiKindField]
			delete(known, apiKindField)
		}
	}
	if found, ok := known[name]; ok {
		return plain(found), nil
	}
	names := slices.Sorted(maps.Keys(known))
	return nil, fmt.Errorf("there is no field %s; %s", name, app.DidYouMean(name, names, "the fields are "+strings.Join(names, ", ")))
}

func plain(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// parseValue reads the text of a value of a type.
func parseValue(t reflect.Type, text string) (any, error) {
	switch {
	case t.Kind() == reflect.String, t.PkgPath() == "time":
		return text, nil
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String && !strings.HasPrefix(text, "["):
		items := []any{}
		for _, item := range strings.Split(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				items = append(items, item)
			}
		}
		return items, nil
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil || decoder.More() {
		return nil, fmt.Errorf("%q is not %s", text, describeType(t))
	}
	if !fits(t, value) {
		return nil, fmt.Errorf("%s is not %s", text, describeType(t))
	}
	return value, nil
}

// fits reports whether a decoded value has the type. null fits every type.
func fits(t reflect.Type, value any) bool {
	switch value.(type) {
	case bool:
		return t.Kind() == reflect.Bool || free(t)
	case json.Number:
		return t.Kind() >= reflect.Int && t.Kind() <= reflect.Float64 || free(t)
	case map[string]any:
		return t.Kind() == reflect.Struct || t.Kind() == reflect.Map || free(t)
	case []any:
		return t.Kind() == reflect.Slice || free(t)
	case string:
		return free(t)
	}
	return true
}

func free(t reflect.Type) bool {
	return t.Kind() == reflect.Interface || t == reflect.TypeFor[json.RawMessage]()
}

func describeType(t reflect.Type) string {
	switch {
	case free(t):
		return "JSON"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return "a whole number"
	case t.Kind() == reflect.Float64:
		return "a number"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		return `a list such as a,b or ["a","b"]`
	case t.Kind() == reflect.Slice:
		return "a list in JSON"
	}
	return "an object in JSON"
}
