package rest

import (
	"bytes"
	"encoding/json"
	"maps"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// patched are the fields of a spec changed by a merge patch (RFC 7396): objects
// merge per key, null removes a key or restores a default, all else replaces.
func patched(spec fleet.GroupSpec, patch map[string]any) (groupFields, error) {
	// Two pairs of fields say one thing in two ways: the one in the patch counts.
	present := asMap(fieldsOf(spec))
	for _, pair := range [][2]string{{"templates", "templateInstallationConfig"}, {"cpu", "cpuReservation"}} {
		_, first := patch[pair[0]]
		_, second := patch[pair[1]]
		if second && !first {
			delete(present, pair[0])
		}
	}
	// What nobody said is not said by a patch of something else.
	if spec.Software.Assumed {
		delete(present, "platform")
	}
	if spec.Readiness.Type == "" {
		delete(present, "readiness")
	}
	merge(present, patch)
	var out groupFields
	b, err := json.Marshal(present)
	if err != nil {
		return out, errs.As(errs.Internal, "rest.patched", err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(&out); err != nil {
		return out, errs.As(errs.Internal, "rest.patched", err)
	}
	return out, nil
}

// keepUnsaid keeps defaults unset that a client has read and writes back: they are no choice of the user.
func keepUnsaid(spec *fleet.GroupSpec, old fleet.GroupSpec) {
	if old.Software.Assumed && spec.Software.Platform == old.Software.Platform {
		spec.Software.Assumed = true
	}
	if old.Readiness.Type == "" && spec.Readiness == old.ReadinessInForce() {
		spec.Readiness = fleet.Check{}
	}
}

func merge(into, patch map[string]any) {
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
			merge(inner, v)
			into[k] = inner
		default:
			into[k] = v
		}
	}
}

// asMap is a value as JSON has it, numbers exact.
func asMap(v any) map[string]any {
	out := map[string]any{}
	b, err := json.Marshal(v)
	if err != nil { // fields came from JSON
		return out
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	_ = dec.Decode(&out)
	return out
}
