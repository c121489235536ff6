package fleet

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
)

func TestPatchesAreValidated(t *testing.T) {
	cases := []struct {
		name  string
		patch configfile.ConfigPatch
		want  string
	}{
		{"outside", configfile.ConfigPatch{File: "../a.yml", Path: "a", Op: configfile.PatchSet, Value: json.RawMessage("1")}, "leaves the instance's directory"},
		{"no value", configfile.ConfigPatch{File: "a.yml", Path: "a", Op: configfile.PatchSet}, "needs a value"},
		{"no operation", configfile.ConfigPatch{File: "a.yml", Path: "a", Value: json.RawMessage("1")}, "op must be SET, REPLACE or REGEX"},
		{"no path", configfile.ConfigPatch{File: "a.yml", Op: configfile.PatchReplace, Value: json.RawMessage("1")}, "path"},
		{"a regex of a number", configfile.ConfigPatch{File: "a.yml", Path: "a", Op: configfile.PatchRegex, Value: json.RawMessage("1")}, "must be a string"},
		{"a regex with a group that is not there", configfile.ConfigPatch{File: "a.yml", Path: "(a)", Op: configfile.PatchRegex, Value: json.RawMessage(`"$2"`)}, "refers to an unknown group"},
		{"no regex", configfile.ConfigPatch{File: "a.yml", Path: "(", Op: configfile.PatchRegex, Value: json.RawMessage(`""`)}, "is not a regular expression"},
		{"a costly regex", configfile.ConfigPatch{File: "a.yml", Path: "(.*x){1,900}y", Op: configfile.PatchRegex, Value: json.RawMessage(`""`)}, "is too complex"},
		{"good", configfile.ConfigPatch{File: "**/a.yml", Path: "a.b", Op: configfile.PatchSet, Value: json.RawMessage("null")}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			spec := DefaultSpec()
			spec.ConfigRules = []configfile.ConfigPatch{c.patch}
			var said []string
			for _, err := range spec.Validate() {
				said = append(said, errs.FieldOf(err)+": "+err.Error())
			}
			if all := strings.Join(said, "; "); !strings.Contains(all, c.want) || c.want == "" && all != "" || c.want != "" && !strings.Contains(all, "configRules[0]") {
				t.Errorf("it says %q, want %q of configRules[0]", all, c.want)
			}
		})
	}
}
