package report_test

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/report"
)

func TestDiffers(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	whole := fleet.Resources{MemoryMiB: 1000}
	with := func(change func(*fleet.Report, *fleet.InstanceReport)) fleet.Report {
		r := fleet.Report{CPU: 0.5, MemoryMiB: 500, DiskFreeMiB: 500, DiskMiB: 1000, Warm: []string{"a"}, CacheBytes: 1 << 30, At: at}
		i := fleet.InstanceReport{Players: 3, MaxPlayers: 20, HeartbeatAt: at, TPS: 20}
		if change != nil {
			change(&r, &i)
		}
		r.Instances = map[fleet.InstanceID]fleet.InstanceReport{"aaaaaa": i}
		return r
	}
	cases := []struct {
		name   string
		change func(*fleet.Report, *fleet.InstanceReport)
		want   bool
	}{
		{"the same says nothing new", nil, false},
		{"time alone says nothing new", func(r *fleet.Report, _ *fleet.InstanceReport) { r.At = at.Add(time.Hour) }, false},
		{"a small move of usage says nothing new", func(r *fleet.Report, _ *fleet.InstanceReport) { r.CPU, r.MemoryMiB = 0.54, 540 }, false},
		{"a step of processor use counts", func(r *fleet.Report, _ *fleet.InstanceReport) { r.CPU = 0.56 }, true},
		{"a step of memory counts", func(r *fleet.Report, _ *fleet.InstanceReport) { r.MemoryMiB = 440 }, true},
		{"a step of disk counts", func(r *fleet.Report, _ *fleet.InstanceReport) { r.DiskFreeMiB = 400 }, true},
		{"a template at hand counts", func(r *fleet.Report, _ *fleet.InstanceReport) { r.Warm = []string{"a", "b"} }, true},
		{"a template that is gone counts", func(r *fleet.Report, _ *fleet.InstanceReport) { r.Warm = nil }, true},
		{"a file more in the cache says nothing new", func(r *fleet.Report, _ *fleet.InstanceReport) { r.CacheBytes += 1 << 20 }, false},
		{"a much larger cache counts", func(r *fleet.Report, _ *fleet.InstanceReport) { r.CacheBytes += 256 << 20 }, true},
		{"a much smaller cache counts", func(r *fleet.Report, _ *fleet.InstanceReport) { r.CacheBytes -= 256 << 20 }, true},
		{"a player counts", func(_ *fleet.Report, i *fleet.InstanceReport) { i.Players++ }, true},
		{"a young heartbeat says nothing new", func(_ *fleet.Report, i *fleet.InstanceReport) { i.HeartbeatAt = at.Add(10 * time.Second) }, false},
		{"a heartbeat after a long time counts", func(_ *fleet.Report, i *fleet.InstanceReport) { i.HeartbeatAt = at.Add(30 * time.Second) }, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := report.Differs(with(nil), with(c.change), whole); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
	if !report.Differs(with(nil), fleet.Report{CPU: 0.5, MemoryMiB: 500, DiskFreeMiB: 500, DiskMiB: 1000, Warm: []string{"a"}, CacheBytes: 1 << 30}, whole) {
		t.Error("an instance that is gone says nothing new")
	}
}

func TestAllNodesTogetherStayBelowAHundredReportsASecond(t *testing.T) {
	for nodes := range 5000 {
		i := report.Interval(nodes)
		if i < time.Second {
			t.Fatalf("%d nodes: an interval of %v", nodes, i)
		}
		if rate := float64(nodes) / i.Seconds(); rate > 91 {
			t.Fatalf("%d nodes: %v reports a second", nodes, rate)
		}
	}
}
