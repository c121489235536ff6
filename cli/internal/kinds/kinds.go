// Package kinds lists the kinds of objects that the commands know: their names, where the API has
// them, and what a table shows of them.
package kinds

import (
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/tidwall/gjson"
)

// Kind is a kind of object.
type Kind struct {
	// Name is the singular name in commands, for example api-token.
	Name string
	// Plural is the plural name.
	Plural string
	// Aliases are short and older names.
	Aliases []string
	// Document is the name in documents, for example APIToken; empty if the kind cannot be declared.
	Document string
	// Path is where the API lists the objects. A single object is below it. {group} stands for the
	// group of --group.
	Path string
	// Data is the field of the answer that holds the list; empty means data.
	Data string
	// NameField is the field that names an object.
	NameField string
	// Title is what -o name and completion describe an object with, besides its name. It may be empty.
	Title string
	// Columns are those of the table.
	Columns []output.Column
	// Singleton kinds have one object without a name, at Path.
	Singleton bool
	// ListOnly kinds have no route for a single object: it is searched in the list.
	ListOnly bool
	// HistoryName is the name in /api/v1/history; empty without a history.
	HistoryName string
	// EventPrefixes are the beginnings of the types of the events that tell of changes; kinds without
	// one are told of by RESOURCE_CHANGED.
	EventPrefixes []string
	// EventName is the field of those events that names the object.
	EventName string
	// Resource is the kind in RESOURCE_CHANGED events.
	Resource string
	// Filters are the query parameters that the list of the API takes.
	Filters []string
	// Type is the SDK's type of an object. Its fields can be filtered and sorted by.
	Type reflect.Type
	// Request is the SDK's type of the fields that can be set, for kinds with documents.
	Request reflect.Type
	// KindField is the name in documents of the API's field kind, because documents have another kind.
	KindField string
	// Applied is the name of the kind in /api/v1/applied, for kinds with documents. If it is empty, the server does not
	// store what was applied.
	Applied string
	// Joins kinds have objects that join by themselves: documents change them, but create and prune none.
	Joins bool
	// Post kinds are created by POST to the list, others by PUT of the object.
	Post bool
	// Patch kinds are changed by PATCH, others by PUT of all fields.
	Patch bool
	// UpperCase kinds have names in capitals, whatever the case is in a request.
	UpperCase bool
	// PageSize is the largest page; 0 means 500.
	PageSize int
	// Deletable kinds can be deleted by name.
	Deletable bool
	// NoDeleteDryRun kinds are deleted by a route without a dry run.
	NoDeleteDryRun bool
}

// Article returns the indefinite article of a name: "an" for overlay, "a" for user.
func Article(name string) string {
	if name != "" && strings.ContainsRune("aeio", rune(name[0])) {
		return "an"
	}
	return "a"
}

// All returns all kinds, in the order in which help lists them.
func All() []*Kind { return slices.Clone(all) }

// Find returns the kind of a name, plural or alias in any case; nil if there is none.
func Find(name string) *Kind {
	name = strings.ToLower(name)
	i := slices.IndexFunc(all, func(k *Kind) bool {
		return k.Name == name || k.Plural == name || strings.ToLower(k.Document) == name && name != "" || slices.Contains(k.Aliases, name)
	})
	if i < 0 {
		return nil
	}
	return all[i]
}

// Get returns the kind of that name, which must exist.
func Get(name string) *Kind {
	k := Find(name)
	if k == nil {
		panic("kinds: no kind " + name)
	}
	return k
}

// ListPath returns the path of the list; group replaces {group}.
func (k *Kind) ListPath(group string) string {
	return strings.ReplaceAll(k.Path, "{group}", url.PathEscape(group))
}

// ObjectPath returns the path of one object.
func (k *Kind) ObjectPath(group, name string) string {
	if k.Singleton {
		return k.Path
	}
	return k.ListPath(group) + "/" + url.PathEscape(name)
}

// HistoryPath returns the path of the changes of one object; the kind must have a HistoryName.
func (k *Kind) HistoryPath(name string) string {
	return "/api/v1/history/" + k.HistoryName + "/" + url.PathEscape(name)
}

// InGroup reports whether the objects belong to one group.
func (k *Kind) InGroup() bool { return strings.Contains(k.Path, "{group}") }

// Fields returns the JSON names of the fields of an object; nil if they are not known.
func (k *Kind) Fields() []string {
	return fieldsOf(k.Type)
}

// Writable returns the JSON names of the fields that can be set; nil for kinds without documents.
func (k *Kind) Writable() []string { return fieldsOf(k.Request) }

func fieldsOf(t reflect.Type) []string {
	if t == nil {
		return nil
	}
	var fields []string
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			fields = append(fields, name)
		}
	}
	return fields
}

// Names returns the singular names of the kinds that keep reports true for; nil keeps all.
func Names(keep func(*Kind) bool) []string {
	var names []string
	for _, k := range all {
		if keep == nil || keep(k) {
			names = append(names, k.Name)
		}
	}
	return names
}

// TakesFilter reports whether the list of the API takes the query parameter.
func (k *Kind) TakesFilter(name string) bool { return slices.Contains(k.Filters, name) }

// resourceChanged is the type of events about kinds without a type of their own.
const resourceChanged = "RESOURCE_CHANGED"

// Changed returns the name of the object of this kind that an event is about. The name is empty if
// the event is about another kind.
func (k *Kind) Changed(eventType string, data []byte) string {
	if eventType == resourceChanged {
		if k.Resource != "" && gjson.GetBytes(data, "kind").String() == k.Resource {
			return gjson.GetBytes(data, "name").String()
		}
		return ""
	}
	if !slices.ContainsFunc(k.EventPrefixes, func(prefix string) bool { return strings.HasPrefix(eventType, prefix) }) {
		return ""
	}
	for _, field := range strings.Split(k.EventName, "|") {
		if name := gjson.GetBytes(data, field).String(); name != "" {
			return name
		}
	}
	return ""
}

// Mentions reports whether an event is about the object of that name or about something that belongs to it, such as an
// instance on a node.
func (k *Kind) Mentions(eventType string, data []byte, name string) bool {
	if name == "" {
		return false
	}
	if k.Changed(eventType, data) == name {
		return true
	}
	for _, field := range strings.Split(k.EventName, "|") {
		if gjson.GetBytes(data, field).String() == name {
			return true
		}
	}
	return false
}

// IsOver reports whether an instance in a state has ended.
func IsOver(state string) bool { return state == "STOPPED" || state == "CRASHED" }
