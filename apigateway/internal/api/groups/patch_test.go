package groups

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/score"
)

func TestAnEmptyPatchOfAnySpecIsThatSpec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := fleet.DefaultSpec()
		s.Scaling.Min = rapid.IntRange(-5, 1<<40).Draw(t, "min")
		s.Resources.CPU = rapid.IntRange(0, 1<<20).Draw(t, "cpu")
		s.Command = rapid.String().Draw(t, "command")
		s.Env = rapid.MapOf(rapid.StringMatching(`[A-Z]{1,3}`), rapid.String()).Draw(t, "env")
		if len(s.Env) == 0 {
			s.Env = nil
		}
		s.OnNodeLoss = rapid.SampledFrom([]fleet.OnNodeLoss{"", fleet.NodeLossWait}).Draw(t, "loss")
		s.Where.MaxSkew, s.Where.MaxPerNode = rapid.IntRange(0, 9).Draw(t, "skew"), rapid.IntRange(0, 9).Draw(t, "per node")
		s.Where.Alone, s.Preempts, s.Rebalance = rapid.Bool().Draw(t, "alone"), rapid.Bool().Draw(t, "preempts"), rapid.Bool().Draw(t, "rebalance")
		s.Where.Profile = rapid.SampledFrom([]score.Profile{"", score.ProfileSpread, score.ProfilePack}).Draw(t, "profile")
		for range rapid.IntRange(0, 2).Draw(t, "preferences") {
			s.Where.Prefer = append(s.Where.Prefer, fleet.Preference{Label: rapid.String().Draw(t, "label"), Weight: rapid.Int().Draw(t, "weight")})
		}
		s.Where.Weights = rapid.MapOfN(rapid.SampledFrom(score.Parts[:]), rapid.Float64Range(-1e9, 1e9), 1, 3).Draw(t, "weights")
		s.Labels = rapid.MapOfN(rapid.StringMatching(`[a-z]{1,3}`), rapid.String(), 1, 3).Draw(t, "labels")
		amount := rapid.IntRange(-1, 1<<40)
		s.Quota = fleet.Budget{MemoryMiB: amount.Draw(t, "memory"), CPU: amount.Draw(t, "share"), Instances: amount.Draw(t, "instances")}
		s.Reserved = fleet.Budget{MemoryMiB: amount.Draw(t, "kept"), CPU: amount.Draw(t, "kept share"), Instances: amount.Draw(t, "kept instances")}
		for range rapid.IntRange(0, 3).Draw(t, "layers") {
			s.Templates.AllOf = append(s.Templates.AllOf, content.TemplateLayer{
				TemplateRef: content.TemplateRef{Group: "g", Name: rapid.StringMatching(`[a-z]{1,3}`).Draw(t, "name")},
				Priority:    rapid.IntRange(-3, 3).Draw(t, "priority"),
			})
		}
		s.Explicit = rapid.SampledFrom([][]string{nil, {"command", "cpu"}}).Draw(t, "explicit")
		got, err := patchedSpec(s, map[string]any{})
		if err != nil {
			t.Fatal(err)
		}
		if d := diff(&fleet.Group{Spec: s}, fleet.Group{Spec: got}, true, func(g *fleet.Group) map[string]string { return g.Spec.Variables }); len(d) != 0 {
			t.Fatalf("changed %+v", d)
		}
		if d := cmp.Diff(s, got, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("changed unseen (-before +after)\n%s", d)
		}
	})
}
