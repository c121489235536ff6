package command

import (
	"maps"
	"slices"
	"testing"
)

func TestAssignmentsAreSplitFromNames(t *testing.T) {
	changes, others, err := Assignments([]string{"node-1", "zone=a=b", "rack-", "empty="}, "")
	if err != nil || !slices.Equal(others, []string{"node-1"}) {
		t.Fatalf("others are %q, %v", others, err)
	}
	if keys := slices.Sorted(maps.Keys(changes)); !slices.Equal(keys, []string{"empty", "rack", "zone"}) {
		t.Fatalf("the keys are %q", keys)
	}
	if changes["rack"] != nil || *changes["zone"] != "a=b" || *changes["empty"] != "" {
		t.Errorf("the changes are %v", changes)
	}
	for _, wrong := range [][]string{{"=a"}, {"-"}, {"a=1", "a-"}} {
		if _, _, err := Assignments(wrong, ""); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}
