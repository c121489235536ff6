package compose_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
)

func TestStartSecretRefsOverridePlan(t *testing.T) {
	p := fleet.Plan{Secrets: map[string]string{"A": "secret:a", "B": "", "C": ""}, Variables: map[string]string{"X": "1"}}
	pl := fleet.Placement{Values: map[string]string{"A": "env:A", "B": "file:b", "X": "2"}}
	want := map[string]string{"A": "env:A", "B": "file:b"}
	if diff := cmp.Diff(want, compose.SecretRefs(p, pl)); diff != "" {
		t.Error(diff)
	}
	all := compose.Placeholders(compose.PlaceholderContext{Plan: p, Placement: pl, Node: fleet.Node{Variables: map[string]string{"C": "of the node"}}})
	for _, key := range []string{"A", "B", "C"} {
		if v, ok := all[key]; ok {
			t.Errorf("%s has the value %q", key, v)
		}
	}
	if all["X"] != "2" {
		t.Errorf("X is %q", all["X"])
	}
}
