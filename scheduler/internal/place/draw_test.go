package place_test

import (
	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/policy"
	"github.com/orreryhq/orrery/libs/fleet/score"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// maybe draws a value, which is mostly the zero value.
func maybe[V any](t *rapid.T, label string, g *rapid.Generator[V]) (v V) {
	if rapid.IntRange(0, 3).Draw(t, label+"?") == 0 {
		v = g.Draw(t, label)
	}
	return v
}

// drawNode draws a node with any facts that a node can report.
func drawNode(t *rapid.T, id fleet.NodeID) place.Node {
	return node(id, func(n *place.Node) {
		n.Live = rapid.IntRange(0, 9).Draw(t, "live") > 0
		n.Cordoned = rapid.IntRange(0, 9).Draw(t, "cordoned") == 0
		n.Capacity = fleet.Resources{MemoryMiB: rapid.IntRange(0, 500).Draw(t, "memory"), CPU: rapid.IntRange(0, 400).Draw(t, "cpu"), DiskMiB: 300}
		if rapid.IntRange(0, 9).Draw(t, "nonsense") == 0 {
			n.Capacity.MemoryMiB = rapid.SampledFrom([]int{-1, 1 << 31}).Draw(t, "impossible")
		}
		n.Room = fleet.NodeRoom{
			Reserved:     fleet.Resources{MemoryMiB: maybe(t, "kept", rapid.IntRange(0, 200)), CPU: maybe(t, "keptCPU", rapid.IntRange(0, 100))},
			CPUFactor:    maybe(t, "factor", rapid.SampledFrom([]float64{0.5, 1, 2, 4, -1})),
			MaxInstances: maybe(t, "most", rapid.IntRange(1, 3)),
		}
		n.CPULoad = rapid.SampledFrom([]float64{0, 0.25, 0.5, 1}).Draw(t, "load")
		n.DiskMiB, n.DiskFreeMiB = maybe(t, "disk", rapid.Just(100)), maybe(t, "diskFree", rapid.IntRange(1, 100))
		n.Warm = maybe(t, "warm", rapid.SampledFrom([][]string{{"d1"}, {"d1", "d2"}}))
		n.Policy = maybe(t, "policy", rapid.SampledFrom([]*policy.Policy{{}, {Users: []string{"games"}}, {Users: []string{"games", "other"}}}))
		n.Labels = map[string]string{}
		if zone := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "zone"); zone != "" {
			n.Labels["zone"] = zone
		}
		if slow := maybe(t, "slow", rapid.SampledFrom([]string{"yes", "no"})); slow != "" {
			n.Labels["slow"] = slow
		}
	})
}

var anyExpr = rapid.SampledFrom([]string{"zone", "!zone", "zone=a", "zone!=b", "zone in (a, b)", "zone notin (c)", "slow", "slow=yes", "!slow"})

// drawWhere draws any rules that a group can have about nodes.
func drawWhere(t *rapid.T) fleet.Where {
	w := fleet.Where{
		Nodes:        maybe(t, "list", rapid.SampledFrom([][]fleet.NodeID{{"*"}, {"n0", "n2", "n3"}})),
		Affinity:     maybe(t, "affinity", rapid.SliceOfN(anyExpr, 1, 2)),
		AntiAffinity: maybe(t, "antiAffinity", rapid.SliceOfN(anyExpr, 1, 2)),
		MaxPerNode:   maybe(t, "maxPerNode", rapid.IntRange(1, 3)),
		Alone:        maybe(t, "alone", rapid.Bool()),
		Profile:      rapid.SampledFrom([]score.Profile{"", score.ProfileSpread, score.ProfilePack}).Draw(t, "profile"),
		Weights:      maybe(t, "weights", rapid.MapOfN(rapid.SampledFrom(score.Parts[:]), rapid.SampledFrom([]float64{0, 0.5, 3}), 1, 3)),
	}
	for range maybe(t, "preferences", rapid.IntRange(1, 2)) {
		w.Prefer = append(w.Prefer, fleet.Preference{Label: anyExpr.Draw(t, "preferred"), Weight: rapid.IntRange(-100, 100).Draw(t, "weight")})
	}
	if rapid.Bool().Draw(t, "spread") {
		w.Spread, w.MaxSkew = "zone", rapid.IntRange(0, 2).Draw(t, "maxSkew")
	}
	return w
}

// drawPlan draws a plan for small nodes.
func drawPlan(t *rapid.T) *fleet.Plan {
	p := *drawRequest(t, 0).Plan
	p.Where = drawWhere(t)
	p.Confine.User = maybe(t, "user", rapid.SampledFrom([]string{"games", "other"}))
	p.Resources.DiskMiB = maybe(t, "wantDisk", rapid.IntRange(1, 100))
	p.GroupRevision = rapid.Int64Range(1, 2).Draw(t, "revision")
	p.Layers = maybe(t, "layers", rapid.SampledFrom([][]fleet.PlanLayer{{{Digest: "d1"}}, {{Digest: "d1"}, {Digest: "d2"}, {}}}))
	return &p
}

var (
	anyGroup = rapid.SampledFrom([]fleet.GroupName{"lobby", "arena"})
	anyNode  = rapid.SampledFrom([]fleet.NodeID{"n0", "n1", "n2", "n3", "n4"})
	anyPorts = rapid.SliceOfNDistinct(rapid.IntRange(100, 104), 0, 3, rapid.ID[int])
)

// drawAsked draws a request with one of the plans.
func drawAsked(t *rapid.T, n int, plans []*fleet.Plan) place.Request {
	return place.Request{
		ID: fleet.NewInstanceID(uint64(n)), Group: anyGroup.Draw(t, "group"), Plan: rapid.SampledFrom(plans).Draw(t, "plan"),
		TemplateMiB: maybe(t, "template", rapid.SampledFrom([]int{20, 50})),
		Pinned:      maybe(t, "pinned", anyNode),
		Leaves:      maybe(t, "leaves", anyNode),
	}
}
