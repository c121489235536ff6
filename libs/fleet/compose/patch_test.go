package compose

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
)

func TestConfigPatchesPrecedeConfigRules(t *testing.T) {
	spec := fleet.DefaultSpec()
	one := json.RawMessage("1")
	spec.Composition.ConfigPatches = map[string]map[string]json.RawMessage{"b.yml": {"y": one, "x": one}, "a.yml": {"z": one}}
	spec.ConfigRules = []configfile.ConfigPatch{{File: "z.txt", Path: "a", Op: configfile.PatchRegex, Value: json.RawMessage(`"b"`)}, {File: "a.yml", Path: "a", Op: configfile.PatchReplace, Value: one}}
	if errs := spec.Validate(); len(errs) > 0 {
		t.Fatal(errs)
	}
	var got []string
	for _, p := range Compose(fleet.Group{Spec: spec}, Materials{}, 0).Patches {
		got = append(got, p.File+" "+p.Path+" "+string(p.Op))
	}
	want := []string{"a.yml z SET", "b.yml x SET", "b.yml y SET", "z.txt a REGEX", "a.yml a REPLACE"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
