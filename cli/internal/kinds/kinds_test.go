package kinds_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/kinds"
)

func TestNamesMeanOneKind(t *testing.T) {
	owner := map[string]string{}
	for _, k := range kinds.All() {
		for _, name := range append([]string{k.Name, k.Plural, strings.ToLower(k.Document)}, k.Aliases...) {
			if other := owner[name]; name != "" && other != "" && other != k.Name {
				t.Errorf("%q means %s and %s", name, other, k.Name)
			}
			owner[name] = k.Name
		}
	}
}

func TestColumnsShowFieldsOfTheAPI(t *testing.T) {
	for _, k := range kinds.All() {
		fields := k.Fields()
		for _, path := range append([]string{k.NameField}, paths(k)...) {
			field, _, _ := strings.Cut(path, ".")
			if !slices.Contains(fields, field) {
				t.Errorf("%s has no field %q; it has %v", k.Name, field, fields)
			}
		}
	}
}

func paths(k *kinds.Kind) []string {
	var out []string
	for _, c := range k.Columns {
		out = append(out, c.Path)
	}
	if k.Title != "" {
		out = append(out, k.Title)
	}
	return out
}

func TestChangedNamesTheObject(t *testing.T) {
	for _, c := range []struct{ kind, event, data, want string }{
		{"instance", "INSTANCE_STATE_CHANGED", `{"instanceId":"lobby-1","group":"lobby"}`, "lobby-1"},
		{"group", "GROUP_UPDATED", `{"groupName":"lobby"}`, "lobby"},
		{"group", "GROUP_SCALED", `{"group":"lobby"}`, "lobby"},
		{"group", "INSTANCE_STATE_CHANGED", `{"instanceId":"lobby-1","group":"lobby"}`, ""},
		{"quota", "RESOURCE_CHANGED", `{"kind":"quota","name":"eu"}`, "eu"},
		{"quota", "RESOURCE_CHANGED", `{"kind":"role","name":"eu"}`, ""},
	} {
		if got := kinds.Get(c.kind).Changed(c.event, []byte(c.data)); got != c.want {
			t.Errorf("%s of %s: %q, want %q", c.event, c.kind, got, c.want)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 192 << 20: "192 MiB", 24069 << 20: "23.5 GiB", 1 << 50: "1024 TiB"} {
		if got := kinds.Size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
