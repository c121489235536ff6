package importer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/golden"
)

// rendered returns a result as JSON, with paths below dir as $DIR.
func rendered(t *testing.T, r *Result, dir string) string {
	t.Helper()
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(r); err != nil {
		t.Fatal(err)
	}
	if dir == "" {
		return out.String()
	}
	return strings.ReplaceAll(out.String(), dir, "$DIR")
}

// cases are the imports of the fixtures.
func cases() []struct {
	name, argument string
	system         func(string) (*Result, error)
} {
	return []struct {
		name, argument string
		system         func(string) (*Result, error)
	}{
		{"universe", "testdata/universe", Universe},
		{"prexorcloud", "testdata/prexorcloud", PrexorCloud},
		{"cloudnet", "testdata/cloudnet", CloudNet},
		{"pterodactyl", "testdata/pterodactyl", Pterodactyl},
		{"systemd", "testdata/systemd/minecraft@survival.service", Systemd},
		{"systemd-screen", "testdata/systemd/proxy.service", Systemd},
	}
}

func TestImportsOfTheFixtures(t *testing.T) {
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			r, err := c.system(c.argument)
			if err != nil {
				t.Fatal(err)
			}
			golden.Equal(t, c.name+".golden.json", rendered(t, r, dir))
		})
	}
}

// schemas returns the names of the fields of a schema of the API.
func schema(t *testing.T, file, name string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../apigateway/internal/openapi/schemas", file))
	if err != nil {
		t.Fatal(err)
	}
	var schemas map[string]struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(text, &schemas); err != nil {
		t.Fatal(err)
	}
	var out []string
	for field := range schemas[name].Properties {
		out = append(out, field)
	}
	return out
}

func TestDocumentsHaveOnlyFieldsOfTheAPI(t *testing.T) {
	fields := map[string][]string{
		"Group": schema(t, "groups.json", "GroupFields"), "Network": schema(t, "networks.json", "NetworkFields"), "Overlay": schema(t, "overlays.json", "OverlayFields"),
	}
	nested := map[string]string{
		"limits": "GroupLimits", "confine": "Confinement", "container": "Container", "readiness": "ReadinessCheck", "templateInstallationConfig": "TemplateSelection",
	}
	for _, c := range cases() {
		r, err := c.system(c.argument)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range r.Documents {
			if len(fields[d.Kind]) == 0 {
				t.Errorf("%s: no schema for the kind %s", c.name, d.Kind)
			}
			for field, value := range d.Fields {
				if !slices.Contains(fields[d.Kind], field) {
					t.Errorf("%s: %s %s has the field %s, which the API does not have", c.name, d.Kind, d.Name, field)
				}
				object, _ := value.(map[string]any)
				for part := range object {
					if in := nested[field]; in != "" && !slices.Contains(schema(t, "groups.json", in), part) {
						t.Errorf("%s: %s %s has the field %s.%s, which the API does not have", c.name, d.Kind, d.Name, field, part)
					}
				}
			}
		}
	}
}

func TestNoSecretIsInAResult(t *testing.T) {
	for _, c := range cases() {
		r, err := c.system(c.argument)
		if err != nil {
			t.Fatal(err)
		}
		text := rendered(t, r, "")
		for _, secret := range []string{"hunter2", "s3cr3t-of-velocity", "abc123", "user:pw@", "do-not-copy", "pull-me", "fixed-one", "aGVsbG8"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: the result has the secret %s", c.name, secret)
			}
		}
	}
}

func TestEveryFieldHasOneNote(t *testing.T) {
	for _, c := range cases() {
		r, err := c.system(c.argument)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, n := range r.Notes {
			key := n.Object + " " + n.Field
			if seen[key] {
				t.Errorf("%s: two notes of %s", c.name, key)
			}
			seen[key] = true
			if n.Text == "" {
				t.Errorf("%s: the note of %s says nothing", c.name, key)
			}
		}
	}
}
