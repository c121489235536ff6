package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/spelling"
)

// keys are looked at in a body for what its decoder took silently: a key that an object has
// two times, of which it takes the last; and, where strict, a field in other letters than it
// is known by.
type keys struct{ strict bool }

// check is Malformed with the path of the first such key of a body that was decoded.
func (k keys) check(body []byte, into reflect.Type) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	return k.value(dec, into, "")
}

// value reads one value of a type, nil for any, which stands at a path.
func (k keys) value(dec *json.Decoder, of reflect.Type, at string) error {
	t, err := dec.Token()
	if err != nil {
		return err
	}
	of = plain(of)
	switch t {
	case json.Delim('{'):
		err = k.object(dec, of, at)
	case json.Delim('['):
		if of != nil && (of.Kind() == reflect.Slice || of.Kind() == reflect.Array) {
			of = of.Elem()
		}
		for i := 0; dec.More() && err == nil; i++ {
			err = k.value(dec, of, fmt.Sprintf("%s[%d]", at, i))
		}
	default:
		return nil
	}
	if err == nil {
		_, err = dec.Token() // the end of the object or list
	}
	return err
}

func (k keys) object(dec *json.Decoder, of reflect.Type, at string) error {
	takes, seen := fieldsOf(of), map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string)
		path := join(at, name)
		known, inner, _ := takes.find(name)
		if k.strict && known != name {
			return unknown{path: path, known: fieldNames(of)}.error(name)
		}
		if seen[known] {
			return &errs.Error{Kind: errs.Malformed, Field: path, Message: path + " is given twice"}
		}
		seen[known] = true
		if err := k.value(dec, inner, path); err != nil {
			return err
		}
	}
	return nil
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// plain is what a type points at; nil for one that reads JSON in a way of its own.
func plain(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t != nil && reflect.PointerTo(t).Implements(unmarshaler) {
		return nil
	}
	return t
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// unknown is a field that a type does not know: its path, and what is known in its place.
type unknown struct {
	path  string
	known []string
}

// unknownAt finds the field of that name that a type does not know; where it is not found,
// its path is the name alone.
func unknownAt(body []byte, into reflect.Type, name string) unknown {
	var value any
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(&value); err != nil && err != io.EOF {
		return unknown{path: name}
	}
	if found := unknownIn(value, into, name, ""); found.path != "" {
		return found
	}
	return unknown{path: name}
}

func unknownIn(value any, t reflect.Type, name, at string) unknown {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch value := value.(type) {
	case []any:
		if t.Kind() != reflect.Slice {
			return unknown{}
		}
		for i, v := range value {
			if found := unknownIn(v, t.Elem(), name, fmt.Sprintf("%s[%d]", at, i)); found.path != "" {
				return found
			}
		}
	case map[string]any:
		takes := fieldsOf(t)
		for key, v := range sorted(value) {
			_, inner, known := takes.find(key)
			if !known && key == name {
				return unknown{path: join(at, name), known: fieldNames(t)}
			}
			if known && inner != nil {
				if found := unknownIn(v, inner, name, join(at, key)); found.path != "" {
					return found
				}
			}
		}
	}
	return unknown{}
}

const (
	// fewFields are told in full.
	fewFields = 8
	// maxTold bounds how much of a path is repeated, in bytes.
	maxTold = 200
)

// error says what is known instead.
func (u unknown) error(name string) error {
	path := strings.ToValidUTF8(u.path[:min(len(u.path), maxTold)], "")
	text := path + " is not a known field"
	if nearest := spelling.Nearest(name, u.known); nearest != "" {
		text += ": did you mean " + nearest + "?"
	} else if n := len(u.known); n > 0 && n <= fewFields {
		text += ": there is " + strings.Join(u.known, ", ")
	}
	return &errs.Error{Kind: errs.Malformed, Field: path, Message: text}
}

// sorted yields an object's fields in order of name.
func sorted(m map[string]any) func(yield func(string, any) bool) {
	return func(yield func(string, any) bool) {
		keys := make([]string, 0, len(m))
		for k := range m {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

// fields are what a type takes, by JSON names.
type fields struct {
	// named are a struct's, each with its type; nil where any name is taken.
	named map[string]reflect.Type
	// each is the type of a map's values; a nil one takes anything.
	each reflect.Type
}

// fieldsOf are those of a struct, of a map, or of anything.
func fieldsOf(t reflect.Type) fields {
	switch {
	case t == nil:
	case t.Kind() == reflect.Map:
		return fields{each: t.Elem()}
	case t.Kind() == reflect.Struct:
		named := map[string]reflect.Type{}
		for _, f := range reflect.VisibleFields(t) {
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.IsExported() && tag != "-" && (!f.Anonymous || tag != "") {
				named[cmp.Or(tag, f.Name)] = f.Type
			}
		}
		return fields{named: named}
	}
	return fields{}
}

// find is the field that a name in any letters is taken for: what it is known by, and its type.
func (f fields) find(name string) (known string, inner reflect.Type, ok bool) {
	if f.named == nil {
		return name, f.each, true
	}
	if inner, ok := f.named[name]; ok {
		return name, inner, true
	}
	for known, inner := range f.named {
		if strings.EqualFold(known, name) {
			return known, inner, true
		}
	}
	return name, nil, false
}
