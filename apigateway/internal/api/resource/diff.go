package resource

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
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
