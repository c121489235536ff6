package place_test

import (
	"math"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/label"
	"github.com/orreryhq/orrery/libs/fleet/score"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// Any stored plan and any node record leads to a placement within bounds or to a refusal
// with a reason.
func FuzzAnyPlanAndNodeIsPlacedOrExplained(f *testing.F) {
	f.Add("zone=a", "slow", "zone", "host", 1.0, 0.5, 1, 1, 100, 1000, 100, 102)
	f.Add("zone in (", "", "=", "", math.NaN(), math.Inf(1), -1, -1, -5, -5, 5, 1)
	f.Add("", "zone notin (a", "zone", "zone", -1.0, math.NaN(), 1<<40, 0, 1<<62, 1<<62, 0, 1<<40)
	f.Fuzz(func(t *testing.T, want, not, prefer, spread string, weight, factor float64, skew, most, memory, capacity, start, end int) {
		m := place.NewModel()
		for _, zone := range []string{"a", "b"} {
			m.SetNode(node(fleet.NodeID(zone), inZone(zone), func(n *place.Node) {
				n.Capacity = fleet.Resources{MemoryMiB: capacity, CPU: capacity}
				n.Room = fleet.NodeRoom{CPUFactor: factor, Reserved: fleet.Resources{MemoryMiB: skew, CPU: most}, MaxInstances: most}
				n.CPULoad, n.DiskFreeMiB = factor, skew
			}), []int{start})
		}
		r := request(func(r *place.Request) {
			r.Plan.Resources = fleet.Resources{MemoryMiB: memory}
			r.Plan.Ports = fleet.PortRange{Start: start, End: end}
			r.Plan.Where = fleet.Where{
				Affinity: []string{want}, AntiAffinity: []string{not}, Prefer: []fleet.Preference{{Label: prefer, Weight: skew}},
				Spread: spread, MaxSkew: skew, MaxPerNode: most, Weights: map[score.Part]float64{score.CPU: weight},
			}
		})
		readable := weight >= 0 && !math.IsInf(weight, 0)
		for _, expr := range []string{want, not, prefer} {
			if _, err := label.ParseLabelExpr(expr); err != nil {
				readable = false
			}
		}
		for range 3 {
			c, u := m.Place(r)
			switch {
			case u != nil && (u.Message == "" || (u.Reason == fleet.ReasonBadConstraint) == readable):
				t.Fatalf("refused with %+v", u)
			case u == nil && (!readable || memory > max(0, capacity) || !r.Plan.Ports.Contains(c.Port)):
				t.Fatalf("placed by %+v", c)
			}
			c.Score.Parts()
		}
	})
}
