package report_test

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/nodeagent/internal/observe/report"
)

func TestDiffers(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	whole := fleet.Resources{MemoryMiB: 1000}
	with := func(change func(*reports.Report)) reports.Report {
		r := reports.Report{
			CPU: 0.5, MemoryMiB: 500, DiskFreeMiB: 500, DiskMiB: 1000, Warm: []string{"a"}, CacheBytes: 1 << 30, At: at,
			StaticBytes: map[string]int64{"survival/survival-1": 10 << 20, "survival/survival-2": 1 << 30},
		}
		if change != nil {
			change(&r)
		}
		return r
	}
	cases := []struct {
		name   string
		change func(*reports.Report)
		want   bool
	}{
		{"no change", nil, false},
		{"time alone does not count", func(r *reports.Report) { r.At = at.Add(time.Hour) }, false},
		{"a small change of usage does not count", func(r *reports.Report) { r.CPU, r.MemoryMiB = 0.54, 540 }, false},
		{"a step of CPU usage counts", func(r *reports.Report) { r.CPU = 0.56 }, true},
		{"a step of memory counts", func(r *reports.Report) { r.MemoryMiB = 440 }, true},
		{"a step of disk counts", func(r *reports.Report) { r.DiskFreeMiB = 400 }, true},
		{"a new cached template counts", func(r *reports.Report) { r.Warm = []string{"a", "b"} }, true},
		{"a removed template counts", func(r *reports.Report) { r.Warm = nil }, true},
		{"a small change of the cache does not count", func(r *reports.Report) { r.CacheBytes += 1 << 20 }, false},
		{"a much larger cache counts", func(r *reports.Report) { r.CacheBytes += 256 << 20 }, true},
		{"a small change of static data does not count", func(r *reports.Report) {
			r.StaticBytes = map[string]int64{"survival/survival-1": 10<<20 + 1000, "survival/survival-2": 1<<30 + 2<<20}
		}, false},
		{"a step of static data counts", func(r *reports.Report) {
			r.StaticBytes = map[string]int64{"survival/survival-1": 11 << 20, "survival/survival-2": 1 << 30}
		}, true},
		{"another static instance counts", func(r *reports.Report) {
			r.StaticBytes = map[string]int64{"survival/survival-1": 10 << 20, "survival/survival-3": 1 << 30}
		}, true},
		{"a much smaller cache counts", func(r *reports.Report) { r.CacheBytes -= 256 << 20 }, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := report.Differs(with(nil), with(c.change), whole); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestFiguresDiffer(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	with := func(change func(*reports.InstanceReport)) map[fleet.InstanceID]reports.InstanceReport {
		i := reports.InstanceReport{Players: 3, MaxPlayers: 20, HeartbeatAt: at, TPS: 20}
		i.Usage = reports.Usage{MemoryBytes: 1 << 30, CPU: 50, CPUKnown: true, DiskBytes: 1 << 30, DiskKnown: true}
		change(&i)
		return map[fleet.InstanceID]reports.InstanceReport{"aaaaaa": i}
	}
	old := with(func(*reports.InstanceReport) {})
	cases := []struct {
		name string
		now  map[fleet.InstanceID]reports.InstanceReport
		want bool
	}{
		{"no change", with(func(*reports.InstanceReport) {}), false},
		{"a player counts", with(func(i *reports.InstanceReport) { i.Players++ }), true},
		{"a step of ticks per second counts", with(func(i *reports.InstanceReport) { i.TPS = 15 }), true},
		{"a young heartbeat does not count", with(func(i *reports.InstanceReport) { i.HeartbeatAt = at.Add(10 * time.Second) }), false},
		{"a much newer heartbeat counts", with(func(i *reports.InstanceReport) { i.HeartbeatAt = at.Add(30 * time.Second) }), true},
		{"a removed instance counts", nil, true},
		{"a small change of memory, CPU and disk does not count", with(func(i *reports.InstanceReport) {
			i.Usage.MemoryBytes, i.Usage.CPU, i.Usage.DiskBytes = i.Usage.MemoryBytes-50<<20, 52, i.Usage.DiskBytes+50<<20
		}), false},
		{"a step of memory counts", with(func(i *reports.InstanceReport) { i.Usage.MemoryBytes -= 60 << 20 }), true},
		{"a step of CPU counts", with(func(i *reports.InstanceReport) { i.Usage.CPU = 0 }), true},
		{"a step of disk counts", with(func(i *reports.InstanceReport) { i.Usage.DiskBytes += 60 << 20 }), true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := report.FiguresDiffer(old, c.now, report.Thresholds{Heartbeat: 30 * time.Second, Usage: true}); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
	soon := report.Thresholds{Heartbeat: 30 * time.Second}
	if report.FiguresDiffer(old, with(func(i *reports.InstanceReport) { i.Usage.CPU = 0 }), soon) {
		t.Error("another use of the host is told before its time")
	}
	if !report.FiguresDiffer(old, with(func(i *reports.InstanceReport) { i.Usage = reports.Usage{} }), soon) {
		t.Error("a use of the host that is not known any more is not told at once")
	}
}

func TestUsageWritesAreBounded(t *testing.T) {
	for _, c := range []struct {
		nodes, instances int
		want             time.Duration
	}{
		{1, 1000, time.Minute},
		{100, 100, time.Minute},
		{1000, 100, 234_375 * time.Millisecond},
	} {
		if got := report.UsageInterval(c.nodes, c.instances); got != c.want {
			t.Errorf("%d nodes of %d instances: every %v, want %v", c.nodes, c.instances, got, c.want)
		}
	}
}

func TestFleetReportRateIsBounded(t *testing.T) {
	for nodes := range 5000 {
		i := report.Interval(nodes, 0)
		if i < time.Second {
			t.Fatalf("%d nodes: an interval of %v", nodes, i)
		}
		if rate := float64(nodes) / i.Seconds(); rate > 91 {
			t.Fatalf("%d nodes: %v reports a second", nodes, rate)
		}
	}
}

func TestPauseGrowsWithReportSize(t *testing.T) {
	for _, c := range []struct {
		nodes, sent int
		want        time.Duration
	}{
		{1, 200 << 10, 2500 * time.Millisecond},
		{90, 400, time.Second},
		{900, 400, 10 * time.Second},
		{1000, 1600, 19_531_250 * time.Microsecond},
		{1000, 100_000, 30 * time.Second},
		{5000, 100_000, 55_555_555_555},
	} {
		if got := report.Interval(c.nodes, c.sent); got != c.want {
			t.Errorf("%d nodes, %d bytes: an interval of %v, want %v", c.nodes, c.sent, got, c.want)
		}
	}
}
