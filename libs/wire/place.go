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
	"github.com/orreryhq/orrery/libs/suggest"
)

// keys checks a body for what the decoder accepts silently: duplicate keys, and, if strict, names
// in another case.
type keys struct{ strict bool }

// check returns a Malformed error with the path of the first such key. The body must already have
// been decoded.
func (k keys) check(body []byte, into reflect.Type) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	return k.value(dec, into, "")
}

// value checks the next value at path at. of is its type, nil if any.
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

// plain returns the type without pointers, nil if it has its own UnmarshalJSON.
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

// unknown is the path of an unknown field and the known names at that place.
type unknown struct {
	path  string
	known []string
}

// unknownAt finds the unknown field of that name. If it is not found, the path is the name itself.
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
	// fewFields is the number of known names up to which all are listed.
	fewFields = 8
	// maxTold bounds how much of a path is repeated, in bytes.
	maxTold = 200
)

// error names the unknown field and suggests known ones.
func (u unknown) error(name string) error {
	path := strings.ToValidUTF8(u.path[:min(len(u.path), maxTold)], "")
	text := path + " is not a known field"
	if nearest := suggest.Nearest(name, u.known); nearest != "" {
		text += ": did you mean " + nearest + "?"
	} else if n := len(u.known); n > 0 && n <= fewFields {
		text += ": known fields are " + strings.Join(u.known, ", ")
	}
	return &errs.Error{Kind: errs.Malformed, Field: path, Message: text}
}

// sorted yields an object's fields sorted by name.
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

// fields are the fields that a type accepts.
type fields struct {
	// named maps the JSON names of a struct to their types. It is nil if any name is accepted.
	named map[string]reflect.Type
	// each is the type of a map's values. Nil accepts anything.
	each reflect.Type
}

// fieldsOf returns the fields of a struct or map. For other types it accepts any field.
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

// find returns the field for a name, ignoring case: its exact name and type.
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
