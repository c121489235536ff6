package nodeagent_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// BenchmarkPlacementToOnline measures the time from writing the placement to the ONLINE status,
// as a watcher sees it, for a small template.
func BenchmarkPlacementToOnline(b *testing.B) {
	for name, plan := range map[string]fleet.Plan{"process": basic("sleep 1000"), "port": server()} {
		b.Run(name, func(b *testing.B) {
			s := newSite(b)
			s.start(taking)
			plan.Layers = []fleet.PlanLayer{s.library.add("base", map[string]string{
				"server.properties": "port=%PORT%\n", "ops.json": "[]", "world/level.dat": "x", "eula.txt": "eula=true\n",
			})}
			plan.FileModifications = []string{"server.properties"}
			s.write(keys.Plan(plan.Digest()), fleet.StoredPlan{Plan: plan})
			took := make([]time.Duration, 0, b.N)
			for n := range b.N {
				id := fleet.InstanceID(fmt.Sprintf("%06d", n))
				port := freePort(b)
				watch := s.etcd.Raw().Watch(b.Context(), keys.Status(id).String())
				began := time.Now()
				s.write(keys.Placement(node, id), fleet.Placement{
					Instance: id, Name: "lobby-1", Group: "lobby", Node: node, Generation: 1, Plan: plan.Digest(), Port: port,
				})
				for online := false; !online; {
					for _, ev := range (<-watch).Events {
						st, err := store.Decode[fleet.Status](store.KeyValue{Value: ev.Kv.Value})
						online = err == nil && st.State == fleet.Online
					}
				}
				took = append(took, time.Since(began))
				s.order(id, 1, fleet.OrderKill)
				s.awaitState(id, 1, fleet.Stopped)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-p50")
			b.ReportMetric(float64(took[len(took)*9/10].Microseconds())/1000, "ms-p90")
		})
	}
}
