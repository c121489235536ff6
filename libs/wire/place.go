package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/spelling"
)

// twice is the path of the first key that an object of a valid body has two times,
// "" when none has. A decoder would take the last and drop the others silently.
func twice(body []byte) string {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	path, _ := twiceIn(dec, "")
	return path
}

// twiceIn reads one value, which stands at a path.
func twiceIn(dec *json.Decoder, at string) (path string, err error) {
	t, err := dec.Token()
	if err != nil {
		return "", err
	}
	switch t {
	case json.Delim('{'):
		seen := map[string]bool{}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return "", err
			}
			name, _ := key.(string)
			inner := join(at, name)
			if seen[name] {
				return inner, nil
			}
			seen[name] = true
			if path, err = twiceIn(dec, inner); path != "" || err != nil {
				return path, err
			}
		}
	case json.Delim('['):
		for i := 0; dec.More(); i++ {
			if path, err = twiceIn(dec, fmt.Sprintf("%s[%d]", at, i)); path != "" || err != nil {
				return path, err
			}
		}
	default:
		return "", nil
	}
	_, err = dec.Token() // the end of the object or list
	return "", err
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
		for key, v := range sorted(value) {
			inner, known := fieldType(t, key)
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

// fieldType is the type of a struct's field, or of a map's values, by its JSON name;
// a nil one takes anything.
func fieldType(t reflect.Type, name string) (inner reflect.Type, known bool) {
	switch t.Kind() {
	case reflect.Map:
		return t.Elem(), true
	case reflect.Struct:
	default:
		return nil, true
	}
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag == "-":
		case f.Anonymous && tag == "":
			embedded := f.Type
			for embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			if inner, known = fieldType(embedded, name); known && embedded.Kind() == reflect.Struct {
				return inner, true
			}
		case f.IsExported() && (strings.EqualFold(tag, name) || tag == "" && strings.EqualFold(f.Name, name)):
			return f.Type, true
		}
	}
	return nil, false
}
