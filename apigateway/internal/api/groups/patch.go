package groups

import (
	"bytes"
	"encoding/json"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
)

// patchedSpec returns a spec after a merge patch. What no user set stays as it is.
func patchedSpec(old fleet.GroupSpec, patch map[string]any) (fleet.GroupSpec, error) {
	fields, err := patched(old, patch)
	if err != nil {
		return fleet.GroupSpec{}, err
	}
	spec, err := fields.spec()
	removed := map[string]bool{}
	for name, value := range patch {
		removed[name] = value == nil
	}
	if old.Explicit == nil && len(compose.Explicit(removed)) == 0 {
		spec.Explicit = nil
	}
	compose.KeepUnset(&spec, &old)
	return spec, err
}

// patched returns the fields of a spec after a merge patch (RFC 7396): objects merge by key, null
// removes a key or restores a default, and any other value replaces.
func patched(spec fleet.GroupSpec, patch map[string]any) (groupFields, error) {
	// Each of these pairs holds the same value in two forms. The form in the patch wins.
	present := SpecFields(spec)
	for _, pair := range [][2]string{{"templates", "templateInstallationConfig"}, {"cpu", "cpuReservation"}} {
		_, first := patch[pair[0]]
		_, second := patch[pair[1]]
		if second && !first {
			delete(present, pair[0])
		}
		if first && !second && pair[0] == "cpu" { // null restores the default of both forms
			delete(present, pair[1])
		}
	}
	// These are values that no user set: a patch of other fields must not set them.
	if spec.Software.Assumed {
		delete(present, "platform")
	}
	if spec.Readiness.Type == "" {
		delete(present, "readiness")
	}
	for _, name := range compose.Unset(&spec) {
		delete(present, name)
		if name == "cpu" {
			delete(present, "cpuReservation")
		}
	}
	resource.MergePatch(present, patch)
	var out groupFields
	b, err := json.Marshal(present)
	if err != nil {
		return out, errs.WrapAs(errs.Internal, "groups.patched", err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(&out); err != nil {
		return out, errs.WrapAs(errs.Internal, "groups.patched", err)
	}
	return out, nil
}

// keepUnset leaves values unset that a client read and sends back, because the user did not choose
// them.
func keepUnset(spec *fleet.GroupSpec, old fleet.GroupSpec) {
	before, after, set := SpecFields(old), SpecFields(*spec), map[string]bool{}
	for name := range after {
		set[name] = spec.Sets(name) && (old.Sets(name) || !resource.EqualJSON(before[name], after[name]))
	}
	spec.Explicit = compose.Explicit(set)
}

// keepDefaultsUnset is keepUnset for the values that were left unset before Explicit existed.
func keepDefaultsUnset(spec *fleet.GroupSpec, old fleet.GroupSpec) {
	if old.Software.Assumed && spec.Software.Platform == old.Software.Platform {
		spec.Software.Assumed = true
	}
	if old.Readiness.Type == "" && spec.Readiness == old.ReadinessInForce() {
		spec.Readiness = fleet.Check{}
	}
}
