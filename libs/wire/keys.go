package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"reflect"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/suggest"
)

// keys checks a body for keys that the decoder accepts silently: duplicate ones, and, if strict,
// unknown names and names in another case.
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
		known, inner, ok := takes.find(name)
		if k.strict && (!ok || known != name) {
			return unknown(path, name, fieldNames(of))
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

const (
	// fewFields is the number of known names up to which all are listed.
	fewFields = 8
	// maxTold bounds how much of a path is repeated, in bytes.
	maxTold = 200
)

// unknown returns the error for an unknown field, which suggests known ones.
func unknown(path, name string, known []string) error {
	path = strings.ToValidUTF8(path[:min(len(path), maxTold)], "")
	text := path + " is not a known field"
	if nearest := suggest.Nearest(name, known); nearest != "" {
		text += ": did you mean " + nearest + "?"
	} else if n := len(known); n > 0 && n <= fewFields {
		text += ": known fields are " + strings.Join(known, ", ")
	}
	return &errs.Error{Kind: errs.Malformed, Field: path, Message: text}
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
		for name, f := range fieldsIn(t) {
			named[name] = f.Type
		}
		return fields{named: named}
	}
	return fields{}
}

// fieldsIn yields the fields of a struct by their JSON names, including those of embedded structs.
func fieldsIn(t reflect.Type) iter.Seq2[string, reflect.StructField] {
	return func(yield func(string, reflect.StructField) bool) {
		for _, f := range reflect.VisibleFields(t) {
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.IsExported() && tag != "-" && (!f.Anonymous || tag != "") && !yield(cmp.Or(tag, f.Name), f) {
				return
			}
		}
	}
}

// fieldNames lists the JSON names of a struct's fields. It is empty for other types.
func fieldNames(t reflect.Type) (names []string) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	for name := range fieldsIn(t) {
		names = append(names, name)
	}
	return names
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
