package resource

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
)

// DecodePatch decodes a JSON object and keeps the fields with the given names. It returns Malformed
// for any other JSON. Numbers stay json.Number.
func DecodePatch(raw []byte, names ...string) (map[string]any, error) {
	body := map[string]any{}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&body); err != nil {
		return nil, &errs.Error{Kind: errs.Malformed, Message: "the body must be a JSON object", Err: err}
	}
	maps.DeleteFunc(body, func(given string, _ any) bool { return !slices.Contains(names, given) })
	return body, nil
}

// MergePatch applies a merge patch (RFC 7396) to an object in place.
func MergePatch(into, patch map[string]any) {
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(into, k)
		case map[string]any:
			inner, ok := into[k].(map[string]any)
			if !ok {
				inner = map[string]any{}
			}
			inner = maps.Clone(inner)
			MergePatch(inner, v)
			into[k] = inner
		default:
			into[k] = v
		}
	}
}

// AsMap returns the fields of a value that encodes as a JSON object. Numbers are json.Number.
func AsMap(v any) map[string]any {
	out := map[string]any{}
	b, err := json.Marshal(v)
	if err != nil {
		return out
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	_ = dec.Decode(&out)
	return out
}
