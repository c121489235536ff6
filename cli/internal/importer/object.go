package importer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/orreryhq/orrery/cli/internal/importer/secret"
	"github.com/orreryhq/orrery/cli/internal/importer/source"
	"github.com/orreryhq/orrery/cli/internal/manifest"
)

// report collects a result.
type report struct {
	result Result
	groups []*group
	others []manifest.Document
	nodes  []string
	noted  map[[2]string]int
	names  given
	// files is the directory that is imported, nil for systems without one.
	files *source.Dir
	// walked counts the files of templates that were looked at.
	walked int
}

func newReport(f *source.Dir) *report {
	return &report{noted: map[[2]string]int{}, names: newGiven(), files: f}
}

// note adds a note. A second note of the same object and field is added to the text of the first.
func (r *report) note(object, field string, value any, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if n, ok := r.noted[[2]string{object, field}]; ok {
		if first := &r.result.Notes[n]; first.Text != text {
			first.Text += " " + text
		}
		return
	}
	r.noted[[2]string{object, field}] = len(r.result.Notes)
	r.result.Notes = append(r.result.Notes, Note{Object: object, Field: field, Value: shown(field, value), Text: text})
}

// shown returns a value for a note.
func shown(field string, value any) string {
	if value == nil {
		return ""
	}
	if secret.Is(field, value) {
		return secret.Hidden
	}
	if s, ok := value.(string); ok {
		return clip(secret.Hide(s))
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(secret.Without(value)); err != nil {
		return fmt.Sprintf("%T", value)
	}
	return clip(string(bytes.TrimSpace(out.Bytes())))
}

// object is a decoded object of a source. An importer takes its fields one by one. rest notes
// the others.
type object struct {
	report *report
	// name is the object's name in notes, and path the prefix of its fields there.
	name, path string
	fields     map[string]any
	taken      map[string]bool
	parts      []*object
}

func (r *report) object(name string, fields map[string]any) *object {
	return &object{report: r, name: name, fields: fields, taken: map[string]bool{}}
}

// value takes a field. It is nil if the field is absent.
func (o *object) value(field string) any {
	o.taken[field] = true
	return o.fields[field]
}

// has reports whether a field is there and not null.
func (o *object) has(field string) bool { return o.fields[field] != nil }

// note takes a field and notes it, unless it is absent or empty.
func (o *object) note(field, format string, args ...any) {
	if value := o.value(field); !empty(value) {
		o.report.note(o.name, o.path+field, value, format, args...)
	}
}

// same takes a field that has no counterpart, and notes it if its value is not the one that
// corresponds to what Orrery does.
func (o *object) same(field string, want any, text string) {
	value := o.value(field)
	if empty(value) || fmt.Sprint(value) == fmt.Sprint(want) {
		return
	}
	o.report.note(o.name, o.path+field, value, "%s", text)
}

// skip takes fields that say nothing about how servers run, such as the date of an export.
func (o *object) skip(fields ...string) {
	for _, field := range fields {
		o.value(field)
	}
}

// wrong notes a field whose value has another type than the source's system gives it.
func (o *object) wrong(field, want string) {
	o.report.note(o.name, o.path+field, o.fields[field], "It is not %s, so it was left out.", want)
}

// text takes a text. It is empty if the field is absent.
func (o *object) text(field string) string {
	switch v := o.value(field).(type) {
	case nil:
	case string:
		return v
	case json.Number, int, float64, bool:
		return fmt.Sprint(v)
	default:
		o.wrong(field, "a text")
	}
	return ""
}

// whole takes an integer. ok is false if the field is absent.
func (o *object) whole(field string) (n int, ok bool) {
	value := o.value(field)
	if value == nil {
		return 0, false
	}
	number, err := strconv.ParseFloat(fmt.Sprint(value), 64)
	if err != nil || number != math.Trunc(number) || math.Abs(number) > math.MaxInt32 {
		o.wrong(field, "an integer")
		return 0, false
	}
	return int(number), true
}

// wholeOr takes an integer that has a default.
func (o *object) wholeOr(field string, otherwise int) int {
	if n, ok := o.whole(field); ok {
		return n
	}
	return otherwise
}

// flag takes a boolean. It is false if the field is absent.
func (o *object) flag(field string) bool {
	switch v := o.value(field).(type) {
	case nil:
	case bool:
		return v
	default:
		o.wrong(field, "true or false")
	}
	return false
}

// texts takes a list of texts.
func (o *object) texts(field string) []string {
	items, ok := o.value(field).([]any)
	if !ok && o.has(field) {
		o.wrong(field, "a list")
	}
	var out []string
	for _, item := range items {
		switch v := item.(type) {
		case string:
			out = append(out, v)
		case json.Number, int, float64, bool:
			out = append(out, fmt.Sprint(v))
		default:
			o.wrong(field, "a list of texts")
		}
	}
	return out
}

// part takes an object. Its own fields are taken one by one.
func (o *object) part(field string) *object {
	for _, p := range o.parts {
		if p.path == o.path+field+"." {
			return p
		}
	}
	fields, ok := o.value(field).(map[string]any)
	if !ok && o.has(field) {
		o.wrong(field, "an object")
	}
	return o.child(field+".", fields)
}

// list takes a list of objects.
func (o *object) list(field string) []*object {
	items, ok := o.value(field).([]any)
	if !ok && o.has(field) {
		o.wrong(field, "a list")
	}
	var out []*object
	for n, item := range items {
		fields, ok := item.(map[string]any)
		if !ok {
			o.wrong(field, "a list of objects")
			continue
		}
		out = append(out, o.child(fmt.Sprintf("%s[%d].", field, n), fields))
	}
	return out
}

func (o *object) child(path string, fields map[string]any) *object {
	c := o.report.object(o.name, fields)
	c.path = o.path + path
	o.parts = append(o.parts, c)
	return c
}

// rest notes all fields that were not taken, also those of the object's parts.
func (o *object) rest() {
	for _, field := range slices.Sorted(maps.Keys(o.fields)) {
		if !o.taken[field] {
			o.note(field, "Orrery has no counterpart, so it was left out.")
		}
	}
	for _, part := range o.parts {
		part.rest()
	}
}

// textIn returns a value if it is a text.
func textIn(value any) string {
	s, _ := value.(string)
	return s
}

// empty reports whether a value asks for nothing.
func empty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// normal returns fields as JSON decodes them, with numbers as json.Number.
func normal(fields map[string]any) (map[string]any, error) {
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode the fields of a document: %w", err)
	}
	var out map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&out); err != nil {
		return nil, fmt.Errorf("decode the fields of a document: %w", err)
	}
	return out, nil
}
