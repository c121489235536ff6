package place_test

import (
	"fmt"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/score"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

const (
	benchNodes     = 5000
	benchInstances = 100_000
)

// benchFleet returns nodes in five zones with room for benchInstances of one gigabyte.
func benchFleet() *place.Model {
	m := place.NewModel()
	for i := range benchNodes {
		m.SetNode(node(fleet.NodeID(fmt.Sprintf("n%04d", i)), func(n *place.Node) {
			n.Capacity = fleet.Resources{MemoryMiB: 64 << 10, CPU: 6400, DiskMiB: 1 << 20}
			n.Labels = map[string]string{"zone": fmt.Sprint("z", i%5), "host": fmt.Sprint("h", i)}
			n.CPULoad = float64(i%10) / 20
		}), nil)
	}
	return m
}

// benchmarkPlace places instances, and starts with an empty fleet again after
// benchInstances.
func benchmarkPlace(b *testing.B, change ...func(*place.Request)) {
	r := request(append([]func(*place.Request){func(r *place.Request) {
		r.Plan.Resources = fleet.Resources{MemoryMiB: 1024, CPU: 50, DiskMiB: 1024}
		r.Plan.Ports = fleet.PortRange{Start: 30_000, End: 30_999}
	}}, change...)...)
	var m *place.Model
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%benchInstances == 0 {
			b.StopTimer()
			m = benchFleet()
			b.StartTimer()
		}
		if _, u := m.Place(r); u != nil {
			b.Fatal(u.Message)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}

func BenchmarkUniform(b *testing.B) { benchmarkPlace(b) }

// BenchmarkConstrained uses anti-affinity, a spread label and two ports.
func BenchmarkConstrained(b *testing.B) {
	benchmarkPlace(b, func(r *place.Request) {
		r.Plan.Where = fleet.Where{AntiAffinity: []string{"zone=z4"}, Spread: "zone", MaxSkew: 1}
		r.Plan.AdditionalPorts = []fleet.NamedPort{{Name: "query", Protocol: "udp", Range: fleet.PortRange{Start: 31_000, End: 31_999}}}
	})
}

// BenchmarkEverything adds the remaining rules about nodes.
func BenchmarkEverything(b *testing.B) {
	benchmarkPlace(b, func(r *place.Request) {
		r.Plan.Where = fleet.Where{
			Affinity: []string{"zone in (z0, z1, z2, z3)"}, AntiAffinity: []string{"slow"}, Spread: "zone", MaxSkew: 2,
			Prefer: []fleet.Preference{{Label: "zone=z1", Weight: 5}, {Label: "host=h7", Weight: -50}}, MaxPerNode: 60, Profile: score.ProfileSpread,
		}
		r.Plan.AdditionalPorts = []fleet.NamedPort{{Name: "query", Protocol: "udp", Range: r.Plan.Ports}}
	})
}

// BenchmarkSpreadOverHosts uses a spread label with a different value on each node.
func BenchmarkSpreadOverHosts(b *testing.B) {
	benchmarkPlace(b, func(r *place.Request) { r.Plan.Where.Spread = "host" })
}

func BenchmarkPacked(b *testing.B) {
	benchmarkPlace(b, func(r *place.Request) { r.Plan.Where.Profile = score.ProfilePack })
}

// BenchmarkNewPlan measures the first request of a plan.
func BenchmarkNewPlan(b *testing.B) {
	m := benchFleet()
	b.ReportAllocs()
	for b.Loop() {
		c, u := m.Place(request())
		if u != nil {
			b.Fatal(u.Message)
		}
		m.Release(c.Hold)
	}
}

func BenchmarkExplain(b *testing.B) {
	m := benchFleet()
	r := request(func(r *place.Request) { r.Plan.Resources.MemoryMiB = 1 << 20 })
	b.ReportAllocs()
	for b.Loop() {
		if _, u := m.Place(r); u == nil {
			b.Fatal("it was placed")
		}
	}
}
