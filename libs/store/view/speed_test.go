package view

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// BenchmarkPlacements measures how a view processes the placements of a large group, which arrive a few
// hundred at a time. ns/op is per placement.
func BenchmarkPlacements(b *testing.B) {
	const instances, nodes, step = 100_000, 5000, 800
	kvs, steps := placements(instances, nodes, step)
	b.ReportAllocs()
	cpu := time.Duration(0)
	for n := 0; n < b.N; {
		b.StopTimer()
		v := New(nil, slog.New(slog.DiscardHandler))
		build := &builder{view: v, keys: map[string]int64{}}
		build.Reset(kvs, 1)
		b.StartTimer()
		runtime.GC()
		cpu -= cpuNow()
		for i, changes := range steps {
			if n >= b.N {
				break
			}
			build.Apply(changes, int64(i+2))
			n += step
		}
		cpu += cpuNow()
	}
	b.ReportMetric(float64(cpu)/float64(b.N), "cpu-ns/op")
}

func cpuNow() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func placements(instances, nodes, step int) (intents []store.KeyValue, steps [][]store.Change) {
	value := func(v any) []byte {
		b, _ := json.Marshal(v)
		return b
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.UTC)
	for n := range instances {
		id := fleet.NewInstanceID(uint64(n) * 1_234_567_891 % 2_176_782_336)
		node := fleet.NodeID(fmt.Sprintf("node-%05d", n/16%nodes))
		in := fmt.Sprintf(`{"id":%q,"group":"arena","ordinal":%d,"name":"arena-%d","generation":1,"desired":"running"}`, id, n+1, n+1)
		intents = append(intents, store.KeyValue{Key: keys.Intent(id).String(), Value: []byte(in), CreateRev: 1, ModRev: 1})
		rev := int64(n/step + 2)
		if n%step == 0 {
			steps = append(steps, nil)
		}
		last := &steps[len(steps)-1]
		add := func(key string, value []byte) {
			*last = append(*last, store.Change{KeyValue: store.KeyValue{Key: key, Value: value, CreateRev: rev, ModRev: rev}})
		}
		if n%16 == 0 {
			add(keys.Alloc(node).String(), value(fleet.Alloc{Node: node}))
		}
		add(keys.Placement(node, id).String(), value(fleet.Placement{
			Instance: id, Name: fmt.Sprintf("arena-%d", n+1), Group: "arena", Node: node, Generation: 1, Plan: fmt.Sprintf("%064x", 7),
			Resources: fleet.Resources{MemoryMiB: 512, CPU: 50}, Port: 30_000 + n%16, Epoch: 77, PlacedAt: at, FromRevision: rev,
			Score: `{"count":0.345678,"cpu":0.234567,"memory":0.123456,"spread":0.1,"total":0.804321}`,
		}))
	}
	return intents, steps
}
