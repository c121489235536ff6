package place

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

const (
	speedNodes     = 5000
	speedInstances = 100_000
	speedExplains  = 500
	// speedLimit bounds one fill, so that slow cases place fewer instances.
	speedLimit = 10 * time.Second
)

// BenchmarkFleet reports the cost of in-memory decisions in a large fleet, as figures for
// `make bench-place`. Their unit is "<id>:<unit>".
func BenchmarkFleet(b *testing.B) {
	b.Run("uniform", func(b *testing.B) { b.ReportMetric(fill(b, plain), "place_mem_per_s:1/s") })
	b.Run("constrained", func(b *testing.B) {
		b.ReportMetric(fill(b, constrained), "place_mem_constrained_per_s:1/s")
	})
	b.Run("explain", func(b *testing.B) {
		for range b.N {
			p50, p99 := explains(b)
			b.ReportMetric(p50, "explain_p50_ms:ms")
			b.ReportMetric(p99, "explain_p99_ms:ms")
		}
	})
}

// fill places a group's instances on empty nodes and returns the rate per second.
func fill(b *testing.B, plan func(*fleet.Plan)) float64 {
	m := speedModel(speedNodes)
	p := speedPlan(plan)
	began := time.Now()
	done := 0
	for done < speedInstances && time.Since(began) < speedLimit {
		r := &Request{ID: fleet.NewInstanceID(uint64(done)), Group: "arena", Plan: p}
		if _, unfit := m.Place(r); unfit != nil {
			b.Fatalf("instance %d: %s", done, unfit.Message)
		}
		done++
	}
	return float64(done) / time.Since(began).Seconds()
}

func speedModel(nodes int) *Model {
	m := NewModel()
	for n := range nodes {
		m.SetNode(Node{
			ID: fleet.NodeID(fmt.Sprintf("node-%05d", n)), Live: true, Runtimes: []fleet.NodeRuntime{{Name: fleet.RuntimeProcess, Offered: true}},
			Labels:   map[string]string{"zone": fmt.Sprintf("z%d", n%8), "disk": [...]string{"ssd", "ssd", "ssd", "hdd"}[n%4]},
			Capacity: fleet.Resources{MemoryMiB: 32 << 10, CPU: 3200, DiskMiB: 1 << 20},
		}, nil)
	}
	return m
}

func plain(*fleet.Plan) {}

// constrained adds anti-affinity, a spread over zones and a second port.
func constrained(p *fleet.Plan) {
	p.Where.AntiAffinity, p.Where.Spread = []string{"disk=hdd"}, "zone"
	p.AdditionalPorts = []fleet.NamedPort{{Name: "query", Range: fleet.PortRange{Start: 40_000, End: 40_100}}}
}

func speedPlan(change func(*fleet.Plan)) *fleet.Plan {
	p := &fleet.Plan{
		Runtime: fleet.RuntimeProcess, Resources: fleet.Resources{MemoryMiB: 512, CPU: 50},
		Ports: fleet.PortRange{Start: 30_000, End: 30_100},
	}
	change(p)
	return p
}

// explains measures explanations for instances of many groups that fit nowhere, in
// milliseconds.
func explains(b *testing.B) (p50, p99 float64) {
	m := speedModel(speedNodes)
	var took []time.Duration
	for n := range speedExplains {
		p := speedPlan(func(p *fleet.Plan) {
			constrained(p)
			p.Resources.MemoryMiB = 64 << 10
		})
		began := time.Now()
		if _, unfit := m.Place(&Request{ID: "abc123", Group: fleet.GroupName(fmt.Sprintf("g%d", n)), Plan: p}); unfit == nil {
			b.Fatal("it fits")
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	at := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))].Microseconds()) / 1000 }
	return at(0.5), at(0.99)
}
