package reports_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
)

func TestReportPartRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.UnixMilli(rapid.Int64Range(1, 1<<42).Draw(t, "at")).UTC()
		p := reports.ReportPart{At: at, Instances: map[fleet.InstanceID]reports.InstanceReport{}}
		for range rapid.IntRange(0, 5).Draw(t, "instances") {
			r := reports.InstanceReport{
				Players: rapid.IntRange(0, 500).Draw(t, "players"), MaxPlayers: rapid.IntRange(0, 500).Draw(t, "most"),
				PlayersKnown: rapid.Bool().Draw(t, "known"), TPS: float64(rapid.IntRange(0, 400).Draw(t, "tps")) / 10,
			}
			if ago := rapid.IntRange(-1, 1000).Draw(t, "ago"); ago >= 0 {
				r.HeartbeatAt = at.Add(-time.Duration(ago) * time.Second)
			}
			r.Usage.MemoryBytes = rapid.Int64Range(0, 1<<20).Draw(t, "memory") << 20
			if r.Usage.CPUKnown = rapid.Bool().Draw(t, "cpuKnown"); r.Usage.CPUKnown {
				r.Usage.CPU = float64(rapid.IntRange(0, 64_000).Draw(t, "cpu")) / 10
			}
			if r.Usage.DiskKnown = rapid.Bool().Draw(t, "diskKnown"); r.Usage.DiskKnown {
				r.Usage.DiskBytes = rapid.Int64Range(0, 1<<20).Draw(t, "disk") << 20
			}
			p.Instances[fleet.InstanceID(rapid.StringMatching("[a-z0-9]{6}").Draw(t, "id"))] = r
		}
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var got reports.ReportPart
		if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, p) {
			t.Errorf("%s is read as %+v, %v; want %+v", b, got, err, p)
		}
	})
}

func TestUsageInMiBRoundsUp(t *testing.T) {
	known := reports.Usage{MemoryBytes: 1, CPUKnown: true, DiskBytes: 1<<20 + 1, DiskKnown: true}
	if m, c, d := known.UsedMemory(), known.UsedCPU(), known.UsedDisk(); m == nil || *m != 1 || c == nil || *c != 0 || d == nil || *d != 2 {
		t.Errorf("memory %v, CPU %v, disk %v", m, c, d)
	}
	var unknown reports.Usage
	if m, c, d := unknown.UsedMemory(), unknown.UsedCPU(), unknown.UsedDisk(); m != nil || c != nil || d != nil {
		t.Errorf("nothing is known: memory %v, CPU %v, disk %v", m, c, d)
	}
	if d := (reports.Usage{DiskKnown: true}).UsedDisk(); d == nil || *d != 0 {
		t.Errorf("an empty directory: %v", d)
	}
}
