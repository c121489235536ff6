package txn

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// Diff returns the fields in which two objects differ, and of nested objects only the fields that
// differ. Replacing before by after in from gives to.
func Diff(from, to map[string]any) (before, after map[string]any) {
	before, after = map[string]any{}, map[string]any{}
	for name, was := range from {
		is, stays := to[name]
		switch {
		case !stays:
			before[name] = was
		case !reflect.DeepEqual(was, is):
			before[name], after[name] = was, is
			a, inner := was.(map[string]any)
			if b, both := is.(map[string]any); inner && both {
				before[name], after[name] = Diff(a, b)
			}
		}
	}
	for name, is := range to {
		if _, was := from[name]; !was {
			after[name] = is
		}
	}
	return before, after
}

// ToMap returns a record as a JSON object. Numbers keep their exact digits.
func ToMap(record any) map[string]any {
	out := map[string]any{}
	b, err := json.Marshal(record)
	if err != nil { // unreachable: records are stored as JSON
		return out
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	_ = dec.Decode(&out)
	return out
}

// OrNil returns an untyped nil for a nil map, so that a missing object differs from an empty one.
func OrNil(m map[string]any) any {
	if m == nil {
		return nil
	}
	return m
}

// maxAudited is the size of the largest object that an audit entry keeps, in bytes.
const maxAudited = 16 << 10

// Truncated is the only field of an audited object that is larger than maxAudited.
const Truncated = "truncated"

// auditable encodes an object for an audit entry: nil as nothing, a too large one as Truncated.
func auditable(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil || len(b) > maxAudited {
		return json.RawMessage(`{"` + Truncated + `":true}`)
	}
	return b
}

// ToMapOrNil is ToMap, and nil for nil.
func ToMapOrNil(record any) map[string]any {
	if record == nil {
		return nil
	}
	return ToMap(record)
}
