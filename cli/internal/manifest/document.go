// Package manifest reads and writes the documents that declare objects, as JSON or YAML.
package manifest

// Document declares one object: a group, a schedule, a role.
type Document struct {
	// Kind is the singular name of the kind in CamelCase, for example Group.
	Kind string
	// Name is the name of the object. Fields does not hold it.
	Name string
	// Fields are the fields of the API, as JSON decodes them: numbers are json.Number.
	Fields map[string]any
}
