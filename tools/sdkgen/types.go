package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// shape says how a Go type shows that it has no value. The zero shape is a scalar, whose zero value
// is a value too.
type shape int

const (
	// object is a struct.
	object shape = iota + 1
	// collection is nil if it is absent or null: a slice, a map or raw JSON.
	collection
)

// goType is the Go type of a schema.
type goType struct {
	text  string
	shape shape
	// null reports whether the JSON value may be null.
	null bool
}

// element returns the type as an element of a slice or map.
func (t goType) element() string {
	if t.null && t.shape != collection {
		return "*" + t.text
	}
	return t.text
}

func raw() goType      { return goType{text: "json.RawMessage", shape: collection} }
func anything() goType { return goType{text: "map[string]any", shape: collection} }

// definition is a struct type of a generated file.
type definition struct {
	name, area, comment string
	fields              []field
	// tagged types remember the ETag of the answer.
	tagged bool
	source *schema
}

type field struct{ name, typ, tag, comment string }

// usage is where a schema occurs, for inline types and comments.
type usage struct {
	// name is the Go name of an inline type.
	name string
	area string
	// request reports whether clients send it.
	request bool
	// origin says what has the type, like "the body of CreateGroup".
	origin string
}

// property returns the usage of a property of a struct. A union and a schema that extends another
// one share the types of properties with the owner of these.
func (t *types) property(p pair[*schema], u usage) usage {
	u.origin = "the field " + p.name + " of " + u.name
	if owner := p.value.owner; owner != "" {
		u.name, u.area, u.request = goName(owner), t.doc.home[owner], t.sent[owner]
	}
	u.name += goName(p.name)
	return u
}

// element returns the usage of the elements of a list or map.
func (u usage) element() usage {
	u.name = singular(u.name)
	if strings.HasPrefix(u.origin, "the field ") {
		u.origin = "an element of " + u.origin
	}
	return u
}

// types makes the Go types of schemas.
type types struct {
	doc *document
	// sent and received are the schemas in requests and in responses.
	sent, received map[string]bool
	defined        map[string]*definition
}

// mark notes the schemas that s refers to as sent in requests, or as received. It skips fields that
// do not occur in that direction.
func (t *types) mark(s *schema, request bool) error {
	if s == nil {
		return nil
	}
	marked := t.received
	if request {
		marked = t.sent
	}
	if s.Ref != "" {
		name := referred(s.Ref)
		if marked[name] {
			return nil
		}
		marked[name] = true
		target, err := t.doc.schema(name)
		if err != nil {
			return err
		}
		return t.mark(target, request)
	}
	inner := append([]*schema{s.Items, s.Extra.schema}, s.OneOf...)
	for _, p := range s.Properties {
		if request && !p.value.ReadOnly || !request && !p.value.WriteOnly {
			inner = append(inner, p.value)
		}
	}
	for _, part := range inner {
		if err := t.mark(part, request); err != nil {
			return err
		}
	}
	return nil
}

// of returns the type of a schema and defines the structs that it needs.
func (t *types) of(s *schema, u usage) (goType, error) {
	switch {
	case s == nil:
		return raw(), nil
	case s.Ref != "":
		return t.named(referred(s.Ref), u)
	case len(s.OneOf) > 0:
		return t.choice(s.OneOf, u)
	}
	kinds, null := withoutNull(s.Type)
	kind := ""
	switch {
	case len(kinds) == 1:
		kind = kinds[0]
	case len(s.Type) > 0:
	case len(s.Properties) > 0:
		kind = "object"
	case len(s.Enum) > 0 && len(texts(s.Enum)) == len(s.Enum):
		kind = "string"
	}
	out, err := t.kind(kind, s, u)
	out.null = null
	return out, err
}

func withoutNull(list kinds) (rest kinds, null bool) {
	for _, k := range list {
		if k != "null" {
			rest = append(rest, k)
		}
	}
	return rest, len(rest) < len(list)
}

func (t *types) kind(kind string, s *schema, u usage) (goType, error) {
	switch kind {
	case "string":
		if s.Format == "date-time" {
			return goType{text: "time.Time"}, nil
		}
		return goType{text: "string"}, nil
	case "integer":
		return goType{text: "int64"}, nil
	case "number":
		return goType{text: "float64"}, nil
	case "boolean":
		return goType{text: "bool"}, nil
	case "array":
		element, err := t.of(s.Items, u.element())
		return goType{text: "[]" + element.element(), shape: collection}, err
	case "object":
		return t.object(s, u)
	}
	return raw(), nil
}

func (t *types) object(s *schema, u usage) (goType, error) {
	if len(s.Properties) > 0 {
		return goType{text: u.name, shape: object}, t.define(s, u, true, true)
	}
	if s.Extra.schema == nil || reflect.DeepEqual(*s.Extra.schema, schema{}) {
		return anything(), nil
	}
	value, err := t.of(s.Extra.schema, u.element())
	return goType{text: "map[string]" + value.element(), shape: collection}, err
}

// named returns the type of a schema with a name. Only objects with properties become a Go type.
func (t *types) named(name string, u usage) (goType, error) {
	s, err := t.doc.schema(name)
	if err != nil {
		return goType{}, err
	}
	u = usage{name: goName(name), area: t.doc.home[name], request: t.sent[name], origin: u.origin}
	if len(s.Properties) == 0 {
		return t.of(s, u)
	}
	return goType{text: u.name, shape: object}, t.define(s, u, t.sent[name], t.received[name])
}

// define adds the struct of s. sent and received say in which directions it goes.
func (t *types) define(s *schema, u usage, sent, received bool) error {
	other := t.defined[u.name]
	if other != nil && other.source == s {
		return nil
	}
	if other != nil {
		return fmt.Errorf("type %s is needed twice: as %s, and for %s", u.name, u.origin, other.comment)
	}
	d := &definition{name: u.name, area: u.area, comment: typeComment(u, s.Description), source: s}
	t.defined[u.name] = d
	for _, p := range s.Properties {
		if p.value.ReadOnly && !received || p.value.WriteOnly && !sent {
			continue
		}
		typ, err := t.of(p.value, t.property(p, u))
		if err != nil {
			return fmt.Errorf("%s.%s: %w", u.name, p.name, err)
		}
		d.fields = append(d.fields, fieldOf(p, typ, s.requires(p.name), u.request))
	}
	return nil
}

// fieldOf returns the field of a property.
func fieldOf(p pair[*schema], typ goType, required, request bool) field {
	f := field{name: goName(p.name), typ: typ.text, comment: fieldComment(p.value)}
	option := ""
	switch {
	case typ.shape == collection:
		if !required {
			option = ",omitzero"
		}
	case required:
		f.typ = typ.element()
	default:
		option = ",omitempty"
		if typ.null || typ.shape == object || typ.text == "time.Time" || request {
			f.typ = "*" + typ.text
		}
	}
	f.tag = fmt.Sprintf("`json:%q`", p.name+option)
	return f
}

// choice returns the type of a value that has one of several schemas: of objects a struct with the
// fields of all.
func (t *types) choice(members []*schema, u usage) (goType, error) {
	var rest []*schema
	null := false
	for _, m := range members {
		if kinds, _ := withoutNull(m.Type); len(m.Type) > 0 && len(kinds) == 0 {
			null = true
			continue
		}
		rest = append(rest, m)
	}
	if len(rest) == 1 {
		out, err := t.of(rest[0], u)
		out.null = out.null || null
		return out, err
	}
	united, name, err := t.unite(rest)
	if err != nil || united == nil {
		return raw(), err
	}
	if name != "" {
		u.name = name
	}
	out := goType{text: u.name, shape: object, null: null}
	if name != "" && t.defined[name] != nil {
		return out, nil
	}
	return out, t.define(united, u, true, true)
}

// unite returns a schema with the properties of all members; nil if one is not an object. name joins
// the names of the members; it is empty if one has none.
func (t *types) unite(members []*schema) (united *schema, name string, err error) {
	united = &schema{Type: kinds{"object"}}
	var names []string
	for i, m := range members {
		if m.Ref != "" {
			names = append(names, goName(referred(m.Ref)))
			if m, err = t.doc.schema(referred(m.Ref)); err != nil {
				return nil, "", err
			}
		}
		if len(m.Properties) == 0 {
			return nil, "", nil
		}
		for _, p := range m.Properties {
			at := slices.IndexFunc(united.Properties, func(q pair[*schema]) bool { return q.name == p.name })
			if at < 0 {
				united.Properties = append(united.Properties, p)
				continue
			}
			united.Properties[at].value = either(united.Properties[at].value, p.value)
		}
		if i == 0 {
			united.Required = slices.Clone(m.Required)
		}
		united.Required = slices.DeleteFunc(united.Required, func(field string) bool { return !m.requires(field) })
	}
	if len(names) == len(members) {
		name = strings.Join(names, "Or")
	}
	return united, name, nil
}

// either returns a schema for values of a or b.
func either(a, b *schema) *schema {
	if reflect.DeepEqual(a, b) {
		return a
	}
	all := slices.Clone(a.Type)
	for _, k := range b.Type {
		if !slices.Contains(all, k) {
			all = append(all, k)
		}
	}
	rest, _ := withoutNull(all)
	simple := len(rest) == 1 && !slices.Contains([]string{"object", "array"}, rest[0])
	if !simple || len(a.Type) == 0 || len(b.Type) == 0 {
		return &schema{Description: a.Description}
	}
	out := &schema{Type: all, Description: a.Description, Enum: append(slices.Clone(a.Enum), b.Enum...)}
	if len(a.Enum) == 0 || len(b.Enum) == 0 {
		out.Enum = nil
	}
	if a.Format == b.Format {
		out.Format = a.Format
	}
	return out
}

// texts returns the strings among JSON values.
func texts(values []json.RawMessage) []string {
	var out []string
	for _, v := range values {
		var text string
		if json.Unmarshal(v, &text) == nil && string(v) != "null" {
			out = append(out, text)
		}
	}
	return out
}

// typeComment begins with the name of the type.
func typeComment(u usage, description string) string {
	first, _, _ := strings.Cut(description, " ")
	switch {
	case description == "":
		return u.name + " is " + u.origin + "."
	case slices.Contains([]string{"A", "An", "The", "One", "What"}, first):
		return u.name + " is " + lowered(description)
	}
	return u.name + " is " + u.origin + ". " + description
}

// fieldComment is the description of a field and its values.
func fieldComment(s *schema) string {
	values := texts(s.Enum)
	missing := slices.ContainsFunc(values, func(v string) bool { return !strings.Contains(s.Description, v) })
	if len(values) < 2 || !missing {
		return s.Description
	}
	for i, v := range values {
		if v == "" {
			values[i] = "empty"
		}
	}
	return strings.TrimSpace(s.Description + " One of: " + strings.Join(values, ", ") + ".")
}
