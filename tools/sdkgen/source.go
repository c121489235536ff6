package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// document is what the OpenAPI sources say.
type document struct {
	// areas are the files in paths/ in alphabetical order.
	areas []area
	// schemas are the files in schemas/, together.
	schemas map[string]*schema
	// home is the area of each schema.
	home map[string]string
	// parameters and responses are components of openapi.json.
	parameters map[string]*parameter
	responses  map[string]*response
}

type area struct {
	name  string
	paths pairs[item]
}

// item is a path: its operations by method, and settings of the sources such as x-alone.
type item = pairs[json.RawMessage]

type operation struct {
	ID          string   `json:"operationId"`
	Summary     string   `json:"summary"`
	Description string   `json:"description"`
	Permissions []string `json:"x-permission"`
	// Later marks an operation that does not work yet.
	Later      bool            `json:"x-later"`
	Parameters []*parameter    `json:"parameters"`
	Body       *body           `json:"requestBody"`
	Responses  pairs[response] `json:"responses"`
}

type parameter struct {
	Ref         string  `json:"$ref"`
	Name        string  `json:"name"`
	In          string  `json:"in"`
	Required    bool    `json:"required"`
	Description string  `json:"description"`
	Schema      *schema `json:"schema"`
}

type body struct {
	Content pairs[media] `json:"content"`
}

type response struct {
	Ref     string       `json:"$ref"`
	Content pairs[media] `json:"content"`
}

type media struct {
	Schema *schema `json:"schema"`
}

type schema struct {
	Ref         string            `json:"$ref"`
	Type        kinds             `json:"type"`
	Format      string            `json:"format"`
	Description string            `json:"description"`
	Enum        []json.RawMessage `json:"enum"`
	Properties  pairs[*schema]    `json:"properties"`
	Required    []string          `json:"required"`
	Items       *schema           `json:"items"`
	OneOf       []*schema         `json:"oneOf"`
	Extra       extra             `json:"additionalProperties"`
	ReadOnly    bool              `json:"readOnly"`
	WriteOnly   bool              `json:"writeOnly"`
	Default     json.RawMessage   `json:"default"`
	Minimum     *float64          `json:"minimum"`
	// owner is the schema that has this one as a property; empty if that has no name.
	owner string
}

func (s *schema) requires(field string) bool { return slices.Contains(s.Required, field) }

// kinds are the JSON types of a schema. A source gives one or a list.
type kinds []string

func (k *kinds) UnmarshalJSON(text []byte) error {
	if text[0] == '[' {
		return json.Unmarshal(text, (*[]string)(k))
	}
	var one string
	err := json.Unmarshal(text, &one)
	*k = kinds{one}
	return err
}

// extra is the schema of additional properties; nil if there are none.
type extra struct{ schema *schema }

func (e *extra) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case "false":
		return nil
	case "true":
		e.schema = &schema{}
		return nil
	}
	return json.Unmarshal(text, &e.schema)
}

// pairs is a JSON object in the order of the source.
type pairs[T any] []pair[T]

type pair[T any] struct {
	name  string
	value T
}

func (p *pairs[T]) UnmarshalJSON(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if _, err := decoder.Token(); err != nil {
		return err
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		next := pair[T]{name: name.(string)}
		if err := decoder.Decode(&next.value); err != nil {
			return fmt.Errorf("%s: %w", next.name, err)
		}
		*p = append(*p, next)
	}
	return nil
}

// get returns the value of a name; the zero value if there is none.
func (p pairs[T]) get(name string) (value T) {
	for _, entry := range p {
		if entry.name == name {
			return entry.value
		}
	}
	return value
}

// methods are the HTTP methods that a path may have.
var methods = []string{"get", "post", "put", "patch", "delete"}

// operations calls visit for each operation of a path.
func operations(path item, visit func(method string, o *operation) error) error {
	for _, entry := range path {
		if !slices.Contains(methods, entry.name) {
			continue
		}
		var o operation
		if err := json.Unmarshal(entry.value, &o); err != nil {
			return fmt.Errorf("%s: %w", entry.name, err)
		}
		if err := visit(entry.name, &o); err != nil {
			return fmt.Errorf("%s: %w", entry.name, err)
		}
	}
	return nil
}

// load reads the sources.
func load(fsys fs.FS) (*document, error) {
	d := &document{schemas: map[string]*schema{}, home: map[string]string{}}
	var main struct {
		Components struct {
			Parameters map[string]*parameter `json:"parameters"`
			Responses  map[string]*response  `json:"responses"`
		} `json:"components"`
	}
	if err := read(fsys, "openapi.json", &main); err != nil {
		return nil, err
	}
	d.parameters, d.responses = main.Components.Parameters, main.Components.Responses
	err := each(fsys, "paths", func(name, file string) error {
		var part struct {
			Paths pairs[item] `json:"paths"`
		}
		err := read(fsys, file, &part)
		d.areas = append(d.areas, area{name: name, paths: part.Paths})
		return err
	})
	if err != nil {
		return nil, err
	}
	return d, each(fsys, "schemas", func(name, file string) error {
		part := map[string]*schema{}
		err := read(fsys, file, &part)
		for schema, s := range part {
			d.schemas[schema], d.home[schema] = s, name
			for _, p := range s.Properties {
				p.value.owner = schema
			}
		}
		return err
	})
}

// each visits the JSON files of a folder in alphabetical order.
func each(fsys fs.FS, dir string, visit func(name, file string) error) error {
	files, err := fs.Glob(fsys, dir+"/*.json")
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := visit(strings.TrimSuffix(path.Base(file), ".json"), file); err != nil {
			return err
		}
	}
	return nil
}

func read(fsys fs.FS, file string, into any) error {
	text, err := fs.ReadFile(fsys, file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// referred returns the name at the end of a reference.
func referred(ref string) string { return path.Base(ref) }

// parameter follows the reference of a parameter.
func (d *document) parameter(p *parameter) (*parameter, error) {
	if p.Ref == "" {
		return p, nil
	}
	target, ok := d.parameters[referred(p.Ref)]
	if !ok {
		return nil, fmt.Errorf("%s does not exist", p.Ref)
	}
	return target, nil
}

// schema returns a schema by name, the same for each call. A schema that extends another one has the
// properties of that.
func (d *document) schema(name string) (*schema, error) {
	s, ok := d.schemas[name]
	if !ok {
		return nil, fmt.Errorf("schema %s does not exist", name)
	}
	if s.Ref == "" {
		return s, nil
	}
	base, err := d.schema(referred(s.Ref))
	if err != nil {
		return nil, err
	}
	extended := *base
	extended.Required = append(slices.Clone(base.Required), s.Required...)
	if s.Description != "" {
		extended.Description = s.Description
	}
	d.schemas[name] = &extended
	return &extended, nil
}
