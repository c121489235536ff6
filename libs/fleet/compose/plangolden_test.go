package compose

import (
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// TestAnOldPlanKeepsItsDigest pins the digest of a plan by an earlier version: newer fields are omitted
// while they are empty.
func TestAnOldPlanKeepsItsDigest(t *testing.T) {
	spec := fleet.DefaultSpec()
	spec.MergeFiles, spec.AutoLayers = nil, false
	spec.Command = "run %PORT%"
	spec.Templates.AllOf = []content.TemplateLayer{layer("g/a", 0), layer("g/b", 3)}
	spec.FileModifications = []string{"*.yml"}
	spec.Variables, spec.Env = map[string]string{"A": "1"}, map[string]string{"B": "%A%"}
	spec.Static = fleet.Static{Enabled: true, ProtectedPaths: []string{"world"}}
	plan := Compose(fleet.Group{Name: "lobby", Revision: 3, Spec: spec}, Materials{Heads: heads("g/a", "g/b")}, 7)
	const want = "6539c829415efc0448d0a39da2aaef0ed68bd3b19764203b4e7fb157742ed4e7"
	if got := plan.Digest(); got != want {
		t.Errorf("the plan's digest is %s, was %s", got, want)
	}
}
