package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/nesting"
)

// BodyLimit is the maximum size of a JSON body, in bytes.
const BodyLimit int64 = 1 << 20

// DecodeJSON decodes exactly one JSON value from r into the struct or map that into points at. The
// error is Malformed for bad syntax, a wrong type, an unknown field (names are case-sensitive), an
// empty body, a value that is not an object, a duplicate key, and data after the value. It is
// TooLarge beyond limit bytes (0 or less means BodyLimit). Messages name the field and the
// values it accepts. Errors with a Kind returned by an UnmarshalJSON method keep their Kind.
//
// into may be partly filled after an error.
func DecodeJSON(r io.Reader, limit int64, into any) error {
	body, err := readBody(r, limit)
	if err != nil {
		return err
	}
	return decode(body, into, true)
}

// DecodeJSONLenient is DecodeJSON except that it ignores unknown fields and the case of names. It
// returns the sorted unknown names at the top level. into must point to a struct.
func DecodeJSONLenient(r io.Reader, limit int64, into any) (ignored []string, err error) {
	body, err := readBody(r, limit)
	if err != nil {
		return nil, err
	}
	if err := decode(body, into, false); err != nil {
		return nil, err
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(body, &top); err != nil {
		return nil, malformed("the body must be an object")
	}
	known := fieldNames(reflect.TypeOf(into))
	for name := range top {
		if !slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, name) }) {
			ignored = append(ignored, name)
		}
	}
	slices.Sort(ignored)
	return ignored, nil
}

func malformed(format string, args ...any) error { return errs.New(errs.Malformed, format, args...) }

func readBody(r io.Reader, limit int64) ([]byte, error) {
	if limit <= 0 {
		limit = BodyLimit
	}
	body, err := io.ReadAll(io.LimitReader(r, limit+1))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, errs.New(errs.TooLarge, "the body is larger than %d bytes", tooLarge.Limit)
	case err != nil:
		return nil, &errs.Error{Kind: errs.Malformed, Message: "the body could not be read completely", Err: err}
	case int64(len(body)) > limit:
		return nil, errs.New(errs.TooLarge, "the body is larger than %d bytes", limit)
	case len(bytes.TrimSpace(body)) == 0:
		return nil, malformed("the body is empty: send a JSON object")
	case !utf8.Valid(body):
		return nil, malformed("the body is not valid UTF-8")
	}
	return body, nil
}

func decode(body []byte, into any, strict bool) error {
	if bytes.Equal(bytes.TrimSpace(body), []byte("null")) { // encoding/json would ignore it
		return malformed("the body must be %s, not null", expected(reflect.TypeOf(into)))
	}
	if nesting.Exceeds(body, nesting.Max) {
		return malformed("the body is nested deeper than %d levels", nesting.Max)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if err := dec.Decode(into); err != nil {
		return explain(body, reflect.TypeOf(into), err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return malformed("the body holds more than one JSON value: send exactly one")
	}
	return keys{strict}.check(body, reflect.TypeOf(into))
}

// explain translates a decoder's error for the author of the body.
func explain(body []byte, into reflect.Type, err error) error {
	var (
		own     *errs.Error
		syntax  *json.SyntaxError
		typeErr *json.UnmarshalTypeError
	)
	switch {
	case errors.As(err, &own):
		return err
	case errors.As(err, &syntax):
		return malformed("the body is not valid JSON at %s: %s", position(body, syntax.Offset), syntax.Error())
	case errors.Is(err, io.ErrUnexpectedEOF):
		return malformed("the body is not valid JSON: it ends too early")
	case errors.As(err, &typeErr):
		return wrongType(into, typeErr)
	}
	return malformed("the body does not fit: %s", err.Error())
}

func wrongType(into reflect.Type, e *json.UnmarshalTypeError) error {
	value, want := jsonName(e.Value), expected(e.Type)
	if e.Field == "" {
		return malformed("the body must be %s, not %s", want, value)
	}
	field := strings.Join(withoutEmbedded(into, strings.Split(e.Field, ".")), ".")
	return &errs.Error{
		Kind: errs.Malformed, Field: field,
		Message: fmt.Sprintf("%s must be %s, not %s", field, want, value),
	}
}

// withoutEmbedded removes the names of embedded structs from a decoder's path, because they do not
// occur in the body.
func withoutEmbedded(t reflect.Type, path []string) []string {
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map) {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct || len(path) == 0 {
		return path
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "" && f.Name == path[0]:
			return withoutEmbedded(f.Type, path[1:])
		case name == path[0], name == "" && f.Name == path[0]:
			return append(path[:1:1], withoutEmbedded(f.Type, path[1:])...)
		}
	}
	return path
}

// jsonName adds an article to the decoder's name of a value ("number 1.5", "array").
func jsonName(value string) string {
	switch value {
	case "array":
		return "a list"
	case "object":
		return "an object"
	case "bool":
		return "true or false"
	case "string":
		return "a string"
	case "number":
		return "a number"
	}
	return value
}

// expected describes, in terms of JSON, the values a Go type accepts.
func expected(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number that is not negative"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	default:
		return "another type"
	}
}

// position returns the line and column of an offset in the body.
func position(body []byte, offset int64) string {
	head := body[:min(max(offset, 0), int64(len(body)))]
	line := bytes.Count(head, []byte("\n")) + 1
	column := len(head) - (bytes.LastIndexByte(head, '\n') + 1)
	return fmt.Sprintf("line %d, column %d", line, column)
}
