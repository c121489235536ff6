package manifest

import (
	"encoding/json"
	"maps"
	"math/big"
	"slices"
	"strconv"
)

// Hidden is what the API shows in place of a secret value.
const Hidden = "***"

// Conflict is a field that the document sets and that another writer changed since the document was
// applied last.
type Conflict struct {
	// Field is the path of the field, for example limits.processes.
	Field string `json:"field"`
	// Applied is what was applied last, Live what another writer made of it, nil if it removed the
	// field, and Document what the document says.
	Applied  any `json:"applied"`
	Live     any `json:"live"`
	Document any `json:"document"`
}

// Merged is the result of Merge.
type Merged struct {
	// Patch is a merge patch (RFC 7396) from the live object to what the document asks for. It
	// overwrites the conflicts.
	Patch map[string]any
	// Conflicts are in the order of their fields.
	Conflicts []Conflict
	// Left are the paths of fields that were removed from the document, but stay because another
	// writer has changed them since.
	Left []string
}

// Merge compares three versions of an object: the fields that were applied last (nil if nothing
// was), those of the live object, and those of a document.
//
// A field of the document is set. A field that was applied and is no longer in the document gets
// its default, unless another writer has changed it. All other fields stay. Objects are merged
// field by field, lists as a whole.
func Merge(applied, live, document map[string]any) Merged {
	m := merger{}
	patch := m.object("", applied, live, document)
	if patch == nil {
		patch = map[string]any{}
	}
	return Merged{Patch: patch, Conflicts: m.conflicts, Left: m.left}
}

type merger struct {
	conflicts []Conflict
	left      []string
}

// object returns the patch of an object; nil if nothing changes.
func (m *merger) object(path string, applied, live, document map[string]any) map[string]any {
	patch := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(document)) {
		m.set(patch, join(path, name), name, applied, live, document[name])
	}
	for _, name := range slices.Sorted(maps.Keys(applied)) {
		if _, kept := document[name]; !kept {
			m.remove(patch, join(path, name), name, applied[name], live)
		}
	}
	if len(patch) == 0 {
		return nil
	}
	return patch
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// set adds a field of the document to the patch.
func (m *merger) set(patch map[string]any, path, name string, applied, live map[string]any, wanted any) {
	was, wasApplied := applied[name]
	is, isLive := live[name]
	wantedObject, ok := wanted.(map[string]any)
	isObject, isOK := is.(map[string]any)
	if ok && isOK {
		wasObject, _ := was.(map[string]any) // without one nothing was applied
		if inner := m.object(path, wasObject, isObject, wantedObject); inner != nil {
			patch[name] = inner
		}
		return
	}
	if isLive && Equal(is, wanted) {
		return
	}
	patch[name] = wanted
	if wasApplied && !Equal(was, is) && !hides(was) && !hides(is) {
		m.conflicts = append(m.conflicts, Conflict{Field: path, Applied: was, Live: is, Document: wanted})
	}
}

// remove adds a field that left the document to the patch.
func (m *merger) remove(patch map[string]any, path, name string, was any, live map[string]any) {
	is, isLive := live[name]
	if !isLive || is == nil {
		return
	}
	wasObject, ok := was.(map[string]any)
	isObject, isOK := is.(map[string]any)
	switch {
	case Equal(was, is) || hides(was) || hides(is):
		patch[name] = nil
	case ok && isOK: // it has fields of other writers
		if inner := m.object(path, wasObject, isObject, nil); inner != nil {
			patch[name] = inner
		}
	default:
		m.left = append(m.left, path)
	}
}

func hides(v any) bool { return v == Hidden }

// Equal reports whether two values are the same to the API: 1.0 is 1.
func Equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, Equal)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, Equal)
	case json.Number:
		b, ok := b.(json.Number)
		return ok && sameNumber(a, b)
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}

func sameNumber(a, b json.Number) bool {
	if a == b {
		return true
	}
	x, isWhole := new(big.Int).SetString(a.String(), 10)
	y, areWhole := new(big.Int).SetString(b.String(), 10)
	if isWhole && areWhole {
		return x.Cmp(y) == 0
	}
	f, err := strconv.ParseFloat(a.String(), 64)
	g, err2 := strconv.ParseFloat(b.String(), 64)
	return err == nil && err2 == nil && f == g
}

// ApplyPatch returns target with a merge patch applied. It changes neither.
func ApplyPatch(target, patch map[string]any) map[string]any {
	out := maps.Clone(target)
	if out == nil {
		out = map[string]any{}
	}
	for name, value := range patch {
		inner, isObject := value.(map[string]any)
		switch {
		case value == nil:
			delete(out, name)
		case isObject:
			current, _ := out[name].(map[string]any) // a value of another type is replaced
			out[name] = ApplyPatch(current, inner)
		default:
			out[name] = value
		}
	}
	return out
}

// Project returns the values that object has for the fields of a document. It is what a client
// remembers as applied: the values as the server stores them, without secrets, which no object
// shows.
func Project(object, document map[string]any) map[string]any {
	out := map[string]any{}
	for name, wanted := range document {
		value, ok := object[name]
		if !ok || value == nil {
			continue
		}
		inner, isObject := value.(map[string]any)
		wantedInner, wantsObject := wanted.(map[string]any)
		if isObject && wantsObject {
			value = Project(inner, wantedInner)
		}
		out[name] = value
	}
	return out
}

// TopField returns the first part of the path of a field.
func TopField(path string) string { return splitPath(path)[0] }
