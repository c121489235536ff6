package manifest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/kinds"
)

// apiKindField is a field of the API whose name documents use for the kind of the object. Kinds that
// have it set KindField.
const apiKindField = "kind"

// kindOf returns the kind that a document names.
func kindOf(file string, value *node, text string) (*kinds.Kind, error) {
	kind := kinds.Find(text)
	if kind != nil && declarable(kind) {
		return kind, nil
	}
	var names []string
	for _, k := range kinds.All() {
		if declarable(k) {
			names = append(names, k.Document)
		}
	}
	at := value.field("kind").value.place
	list := "the kinds are " + strings.Join(names, ", ")
	if kind != nil {
		return nil, errorAt(file, at, "%s cannot be declared; %s", kind.Plural, list)
	}
	return nil, errorAt(file, at, "there is no kind %q; %s", text, app.DidYouMean(text, names, list))
}

// fieldInDocument returns the name that a field of the API has in documents.
func fieldInDocument(kind *kinds.Kind, name string) string {
	if name == apiKindField && kind.KindField != "" {
		return kind.KindField
	}
	return name
}

// check returns the mistakes in the names of the fields, and fields that must be texts but are not.
// It sets Ignored.
func (d *Document) check(kind *kinds.Kind) []error {
	c := checker{file: d.file}
	known := fieldTypes(kind.Request)
	shown := kind.Fields()
	var readOnly []string
	for _, f := range d.tree.fields {
		name := f.name
		switch {
		case name == "kind" || name == "name":
			continue
		case kind.KindField != "" && name == kind.KindField:
			name = apiKindField
		}
		fieldType, ok := known[name]
		switch {
		case ok:
			c.value(f.value, fieldType, f.name)
		case slices.Contains(shown, name):
			readOnly = append(readOnly, name)
		default:
			c.unknown(f, f.name, known, kind.Name)
		}
	}
	slices.Sort(readOnly)
	d.Ignored = readOnly
	return c.mistakes
}

type checker struct {
	file     string
	mistakes []error
}

func (c *checker) unknown(f field, path string, known map[string]reflect.Type, of string) {
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, name)
	}
	slices.Sort(names)
	hint := app.DidYouMean(f.name, names, "")
	if hint == "" && len(names) <= shortList {
		hint = "the fields are " + strings.Join(names, ", ")
	}
	if hint == "" {
		hint = "orrery describe shows the fields of an object"
	}
	c.mistakes = append(c.mistakes, errorAt(c.file, f.place, "%s has no field %s; %s", of, path, hint))
}

// shortList is how many names an error lists.
const shortList = 15

// value checks a value against the type that the SDK has for it. The server checks the rest.
func (c *checker) value(n *node, t reflect.Type, path string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[json.RawMessage](), t.Kind() == reflect.Interface:
	case t.Kind() == reflect.String:
		c.text(n, path)
	case n.shape == objectShape && t.Kind() == reflect.Struct:
		known := fieldTypes(t)
		for _, f := range n.fields {
			if fieldType, ok := known[f.name]; ok {
				c.value(f.value, fieldType, path+"."+f.name)
				continue
			}
			c.unknown(f, path+"."+f.name, known, path)
		}
	case n.shape == objectShape && t.Kind() == reflect.Map:
		for _, f := range n.fields {
			c.value(f.value, t.Elem(), path+"."+f.name)
		}
	case n.shape == listShape && t.Kind() == reflect.Slice:
		for i, item := range n.items {
			c.value(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
	}
}

// text checks that a value is a text. A version such as 1.20 must not become the number 1.2.
func (c *checker) text(n *node, path string) {
	if n.shape != scalarShape || n.scalar == nil {
		return
	}
	if _, ok := n.scalar.(string); !ok {
		c.mistakes = append(c.mistakes, errorAt(c.file, n.place, "%s must be a text: write %q in quotes", path, fmt.Sprint(n.scalar)))
	}
}

// fieldTypes returns the types of the fields of a struct by their JSON names.
func fieldTypes(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			out[name] = f.Type
		}
	}
	return out
}
