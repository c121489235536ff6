// Package manifest reads, writes and merges the documents that declare objects, as JSON or YAML.
package manifest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/kinds"
)

// Document declares one object: a group, a schedule, a role.
type Document struct {
	// Kind is the singular name of the kind in CamelCase, for example Group.
	Kind string
	// Name is the name of the object. Fields does not hold it.
	Name string
	// Fields are the fields of the API, as JSON decodes them: numbers are json.Number. A field that the
	// document sets to null is absent, because null means the default.
	Fields map[string]any
	// Ignored are fields of the document that the API shows and that cannot be set, such as revision.
	Ignored []string

	// file and tree say where the fields are; tree is nil if the document was not read from a file.
	file string
	tree *node
}

// Object returns the kind of the document, which Read has checked.
func (d *Document) Object() *kinds.Kind { return kinds.Get(d.Kind) }

// String returns the kind and the name as commands print them, for example "group lobby".
func (d *Document) String() string { return d.Object().Name + " " + d.Name }

// Position is a place in a file. Lines and columns begin with 1; a zero line is unknown.
type Position struct {
	File         string
	Line, Column int
}

// String returns file:line:column.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Start returns the position of the document. The File is empty if it was not read from one.
func (d *Document) Start() Position {
	if d.tree == nil {
		return Position{}
	}
	return d.tree.at(d.file)
}

// Find returns the position of a field, for example readiness.type or warnings[0].command. If the
// document has only the beginning of the path, it is the position of that. It reports false if it
// has not even the first part.
func (d *Document) Find(path string) (Position, bool) {
	if d.tree == nil {
		return Position{}, false
	}
	position, found, current := Position{}, false, d.tree
	for _, part := range splitPath(path) {
		if !found && part == apiKindField {
			part = fieldInDocument(d.Object(), part)
		}
		place, value := current.child(part)
		if value == nil {
			break
		}
		position, found, current = place.at(d.file), true, value
	}
	return position, found
}

// splitPath splits a.b[0].c into a, b, 0 and c.
func splitPath(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
}

// place is a position in a file that is known.
type place struct{ line, column int }

func (p place) at(file string) Position { return Position{File: file, Line: p.line, Column: p.column} }

// node is a value of a document and where it begins.
type node struct {
	place
	shape shape
	// scalar is nil, a bool, a string or a json.Number.
	scalar any
	fields []field
	items  []*node
}

type shape int

const (
	scalarShape shape = iota
	objectShape
	listShape
)

// field is a field of an object. Its place is that of the name.
type field struct {
	place
	name  string
	value *node
}

// field returns the field of an object, or nil.
func (n *node) field(name string) *field {
	for i := range n.fields {
		if n.fields[i].name == name {
			return &n.fields[i]
		}
	}
	return nil
}

// child returns the field or the element of that name or index and its place; nil if there is none.
func (n *node) child(name string) (place, *node) {
	if f := n.field(name); f != nil {
		return f.place, f.value
	}
	if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(n.items) {
		return n.items[i].place, n.items[i]
	}
	return place{}, nil
}

// value returns the value as JSON decodes it. Fields that are null are left out.
func (n *node) value() any {
	switch n.shape {
	case objectShape:
		out := make(map[string]any, len(n.fields))
		for _, f := range n.fields {
			if v := f.value.value(); v != nil {
				out[f.name] = v
			}
		}
		return out
	case listShape:
		out := make([]any, len(n.items))
		for i, item := range n.items {
			out[i] = item.value()
		}
		return out
	case scalarShape:
	}
	return n.scalar
}

// Error is a mistake in a document.
type Error struct {
	Position
	// Message says what is wrong, without the position.
	Message string
}

// Error returns the position and the message.
func (e *Error) Error() string { return e.Position.String() + ": " + e.Message }

func errorAt(file string, at place, format string, args ...any) *Error {
	return &Error{Position: at.at(file), Message: fmt.Sprintf(format, args...)}
}
