package groups

import (
	"bytes"
	"encoding/json"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

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
	}
	// These are defaults that no one set: a patch of other fields must not set them.
	if spec.Software.Assumed {
		delete(present, "platform")
	}
	if spec.Readiness.Type == "" {
		delete(present, "readiness")
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

// keepDefaultsUnset leaves defaults unset that a client read and sends back, because the user did not
// choose them.
func keepDefaultsUnset(spec *fleet.GroupSpec, old fleet.GroupSpec) {
	if old.Software.Assumed && spec.Software.Platform == old.Software.Platform {
		spec.Software.Assumed = true
	}
	if old.Readiness.Type == "" && spec.Readiness == old.ReadinessInForce() {
		spec.Readiness = fleet.Check{}
	}
}
