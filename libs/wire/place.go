package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
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

// unknownAt is the path of a field of that name that a type does not know; the name
// alone when it is not found.
func unknownAt(body []byte, into reflect.Type, name string) string {
	var value any
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(&value); err != nil && err != io.EOF {
		return name
	}
	if path := unknownIn(value, into, name, ""); path != "" {
		return path
	}
	return name
}

func unknownIn(value any, t reflect.Type, name, at string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch value := value.(type) {
	case []any:
		if t.Kind() != reflect.Slice {
			return ""
		}
		for i, v := range value {
			if path := unknownIn(v, t.Elem(), name, fmt.Sprintf("%s[%d]", at, i)); path != "" {
				return path
			}
		}
	case map[string]any:
		for key, v := range sorted(value) {
			inner, known := fieldType(t, key)
			if !known && key == name {
				return join(at, name)
			}
			if known && inner != nil {
				if path := unknownIn(v, inner, name, join(at, key)); path != "" {
					return path
				}
			}
		}
	}
	return ""
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
