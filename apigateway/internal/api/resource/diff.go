package resource

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet/content"
)

// FieldChange is a field with its old and new value.
type FieldChange struct {
	Field string `json:"field"`
	From  any    `json:"from"`
	To    any    `json:"to"`
}

// Differences lists the fields of to that differ from those of from, sorted by name. Both are
// values that encode as JSON objects.
func Differences(from, to any) []FieldChange {
	a, b := AsMap(from), AsMap(to)
	out := []FieldChange{}
	for _, k := range slices.Sorted(maps.Keys(b)) {
		if !EqualJSON(a[k], b[k]) {
			out = append(out, FieldChange{Field: k, From: a[k], To: b[k]})
		}
	}
	return out
}

// EqualJSON reports whether two values have the same JSON.
func EqualJSON(a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// FileChange is a file that differs between two template versions.
type FileChange struct {
	Path    string             `json:"path"`
	Change  content.ChangeKind `json:"change"`
	OldHash string             `json:"oldHash"`
	NewHash string             `json:"newHash"`
	OldSize int64              `json:"oldSize"`
	NewSize int64              `json:"newSize"`
}

// FileChangesOf converts changes for an answer. The result is never nil.
func FileChangesOf(changes []content.FileChange) []FileChange {
	out := make([]FileChange, 0, len(changes))
	for _, c := range changes {
		f := FileChange{Path: c.Path, Change: c.Change}
		if c.Old != nil {
			f.OldHash, f.OldSize = c.Old.SHA256, c.Old.Size
		}
		if c.New != nil {
			f.NewHash, f.NewSize = c.New.SHA256, c.New.Size
		}
		out = append(out, f)
	}
	return out
}
