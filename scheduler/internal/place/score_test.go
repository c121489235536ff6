package place_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/score"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// half returns a model with one node. Another group holds half of its memory, a quarter of
// its CPU and one of three ports.
func half() *place.Model {
	m := model(node("n", func(n *place.Node) { n.CPULoad, n.Warm = 0.5, []string{"d1"} }))
	m.Charge(place.HoldOf("n", "other", fleet.Resources{MemoryMiB: 500, CPU: 100}, 100, nil))
	return m
}

func TestAScoreReadsLikeThis(t *testing.T) {
	layers := func(r *place.Request) { r.Plan.Layers = []fleet.PlanLayer{{Digest: "d1"}, {Digest: "d2"}} }
	cases := []struct {
		rule string
		ask  func(*place.Request)
		want map[string]float64
	}{
		{"the balanced profile is PrexorCloud's", func(*place.Request) {}, map[string]float64{
			"memory": 0.175, "cpu": 0.125, "instances": 0.075, "ports": 0.067, "spread": 0.15, "total": 0.592,
		}},
		{"the spread profile looks at the group's own first", func(r *place.Request) { r.Plan.Where.Profile = score.ProfileSpread }, map[string]float64{
			"own": 0.5, "spread": 0.3, "memory": 0.05, "cpu": 0.05, "total": 0.9,
		}},
		{"the pack profile wants full nodes with the templates at hand", func(r *place.Request) { r.Plan.Where.Profile = score.ProfilePack; layers(r) }, map[string]float64{
			"packed": 0.4, "spread": 0.1, "warm": 0.05, "total": 0.55,
		}},
		{"a weight counts by its share of all", func(r *place.Request) {
			r.Plan.Where.Weights = map[score.Part]float64{score.Memory: 2.35, score.Ports: 0, score.Instances: 0, score.Spread: 0, score.CPU: 2.35}
		}, map[string]float64{"memory": 0.25, "cpu": 0.25, "total": 0.5}},
		{"without any weight only preferences count", func(r *place.Request) {
			r.Plan.Where.Weights = map[score.Part]float64{score.Memory: 0, score.Ports: 0, score.Instances: 0, score.Spread: 0, score.CPU: 0}
			r.Plan.Where.Prefer = []fleet.Preference{{Label: "!gpu", Weight: 30}, {Label: "!ssd", Weight: -50}, {Label: "gpu", Weight: 100}}
		}, map[string]float64{"preferred": -0.2, "total": -0.2}},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			got := chosen(t, half(), request(c.ask)).Score.Parts()
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhichNodeAProfileChooses(t *testing.T) {
	few := func(r *place.Request) { r.Plan.Ports.End = 1000 }
	profile := func(p score.Profile) func(*place.Request) {
		return func(r *place.Request) { r.Plan.Where.Profile = p }
	}
	cases := []struct {
		rule string
		ask  func(*place.Request)
		want fleet.NodeID
	}{
		{"balanced goes to the emptiest", profile(score.ProfileBalanced), "empty"},
		{"pack goes to the fullest that fits", profile(score.ProfilePack), "full"},
		{"spread goes where the group has fewest", profile(score.ProfileSpread), "empty"},
		{"memory goes where the most is free, not the largest part", profile(score.ProfileMemory), "own"},
		{"memory leaves preferences their weight", func(r *place.Request) {
			r.Plan.Where.Profile = score.ProfileMemory
			r.Plan.Where.Prefer = []fleet.Preference{{Label: "!zone", Weight: 1}}
		}, "empty"},
		{"a preference outweighs a profile", func(r *place.Request) {
			r.Plan.Where.Prefer = []fleet.Preference{{Label: "zone=z", Weight: 100}}
		}, "own"},
		{"an aversion outweighs a profile", func(r *place.Request) {
			r.Plan.Where.Profile = score.ProfilePack
			r.Plan.Where.Prefer = []fleet.Preference{{Label: "!zone", Weight: -100}}
		}, "own"},
		{"warm templates decide between equals", func(r *place.Request) {
			r.Plan.Where.Weights = map[score.Part]float64{score.Memory: 0, score.Instances: 0, score.CPU: 0, score.Warm: 1}
			r.Plan.Layers = []fleet.PlanLayer{{Digest: "d1"}}
		}, "full"},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			m := model(node("empty"), node("own", inZone("z"), func(n *place.Node) { n.Capacity.MemoryMiB, n.CPULoad = 1300, 1 }), node("full", func(n *place.Node) { n.Warm = []string{"d1"} }))
			m.Charge(place.HoldOf("own", "lobby", fleet.Resources{MemoryMiB: 200}, 0, nil))
			m.Charge(place.HoldOf("full", "other", fleet.Resources{MemoryMiB: 800}, 0, nil))
			if got := chosen(t, m, request(few, c.ask)); got.Node != c.want {
				t.Errorf("chose %s (%v), want %s", got.Node, got.Score.Parts(), c.want)
			}
		})
	}
}

func TestALoadThatIsNoNumberIsNoAdvantage(t *testing.T) {
	m := model(node("n", func(n *place.Node) { n.CPULoad = -5 }))
	if s := chosen(t, m, request()).Score; s.Total() > 1 {
		t.Errorf("%v", s.Parts())
	}
}
