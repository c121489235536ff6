package groups

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestDescriptionHasTheDefaultsOfAllFields(t *testing.T) {
	text, err := os.ReadFile("../../openapi/schemas/groups.json")
	if err != nil {
		t.Fatal(err)
	}
	var schemas struct {
		GroupFields struct {
			Properties map[string]struct {
				Default             json.RawMessage
				ReadOnly, WriteOnly bool
			}
		}
	}
	if err := json.Unmarshal(text, &schemas); err != nil {
		t.Fatal(err)
	}
	want := SpecFields(fleet.DefaultSpec())
	for name, p := range schemas.GroupFields.Properties {
		if name == "name" || p.ReadOnly || p.WriteOnly {
			continue
		}
		var described any
		if err := json.Unmarshal(p.Default, &described); err != nil {
			t.Errorf("%s has no default: %v", name, err)
			continue
		}
		if diff := cmp.Diff(canonical(t, want[name]), canonical(t, described)); diff != "" {
			t.Errorf("the default of %s (-is +described):\n%s", name, diff)
		}
	}
}

// canonical returns a value as JSON with sorted keys.
func canonical(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDescriptionHasExamplesThatCanBeSent(t *testing.T) {
	text, err := os.ReadFile("../../openapi/schemas/groups.json")
	if err != nil {
		t.Fatal(err)
	}
	var schemas struct {
		GroupFields struct {
			Properties map[string]struct{ Examples []any }
		}
	}
	if err := json.Unmarshal(text, &schemas); err != nil {
		t.Fatal(err)
	}
	for name, p := range schemas.GroupFields.Properties {
		for _, e := range p.Examples {
			if name == "name" {
				continue
			}
			fields, err := patched(fleet.DefaultSpec(), map[string]any{name: e})
			if err == nil {
				_, err = fields.spec()
			}
			if err != nil {
				t.Errorf("the example of %s: %v", name, err)
			}
		}
	}
}
