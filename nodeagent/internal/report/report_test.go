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
	with := func(change func(*fleet.Report)) fleet.Report {
		r := fleet.Report{
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
		change func(*fleet.Report)
		want   bool
	}{
		{"the same says nothing new", nil, false},
		{"time alone says nothing new", func(r *fleet.Report) { r.At = at.Add(time.Hour) }, false},
		{"a small move of usage says nothing new", func(r *fleet.Report) { r.CPU, r.MemoryMiB = 0.54, 540 }, false},
		{"a step of processor use counts", func(r *fleet.Report) { r.CPU = 0.56 }, true},
		{"a step of memory counts", func(r *fleet.Report) { r.MemoryMiB = 440 }, true},
		{"a step of disk counts", func(r *fleet.Report) { r.DiskFreeMiB = 400 }, true},
		{"a template at hand counts", func(r *fleet.Report) { r.Warm = []string{"a", "b"} }, true},
		{"a template that is gone counts", func(r *fleet.Report) { r.Warm = nil }, true},
		{"a file more in the cache says nothing new", func(r *fleet.Report) { r.CacheBytes += 1 << 20 }, false},
		{"a much larger cache counts", func(r *fleet.Report) { r.CacheBytes += 256 << 20 }, true},
		{"a little more data of a static instance says nothing new", func(r *fleet.Report) {
			r.StaticBytes = map[string]int64{"survival/survival-1": 10<<20 + 1000, "survival/survival-2": 1<<30 + 2<<20}
		}, false},
		{"a step of its data counts", func(r *fleet.Report) {
			r.StaticBytes = map[string]int64{"survival/survival-1": 11 << 20, "survival/survival-2": 1 << 30}
		}, true},
		{"another static instance counts", func(r *fleet.Report) {
			r.StaticBytes = map[string]int64{"survival/survival-1": 10 << 20, "survival/survival-3": 1 << 30}
		}, true},
		{"a much smaller cache counts", func(r *fleet.Report) { r.CacheBytes -= 256 << 20 }, true},
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
	with := func(change func(*fleet.InstanceReport)) map[fleet.InstanceID]fleet.InstanceReport {
		i := fleet.InstanceReport{Players: 3, MaxPlayers: 20, HeartbeatAt: at, TPS: 20}
		i.Usage = fleet.Usage{MemoryBytes: 1 << 30, CPU: 50, CPUKnown: true, DiskBytes: 1 << 30, DiskKnown: true}
		change(&i)
		return map[fleet.InstanceID]fleet.InstanceReport{"aaaaaa": i}
	}
	old := with(func(*fleet.InstanceReport) {})
	cases := []struct {
		name string
		now  map[fleet.InstanceID]fleet.InstanceReport
		want bool
	}{
		{"the same says nothing new", with(func(*fleet.InstanceReport) {}), false},
		{"a player counts", with(func(i *fleet.InstanceReport) { i.Players++ }), true},
		{"a step of ticks per second counts", with(func(i *fleet.InstanceReport) { i.TPS = 15 }), true},
		{"a young heartbeat says nothing new", with(func(i *fleet.InstanceReport) { i.HeartbeatAt = at.Add(10 * time.Second) }), false},
		{"a heartbeat after a long time counts", with(func(i *fleet.InstanceReport) { i.HeartbeatAt = at.Add(30 * time.Second) }), true},
		{"an instance that is gone counts", nil, true},
		{"a small move of memory, CPU and disk says nothing new", with(func(i *fleet.InstanceReport) {
			i.Usage.MemoryBytes, i.Usage.CPU, i.Usage.DiskBytes = i.Usage.MemoryBytes-50<<20, 52, i.Usage.DiskBytes+50<<20
		}), false},
		{"a step of memory counts", with(func(i *fleet.InstanceReport) { i.Usage.MemoryBytes -= 60 << 20 }), true},
		{"a step of CPU counts", with(func(i *fleet.InstanceReport) { i.Usage.CPU = 0 }), true},
		{"a step of disk counts", with(func(i *fleet.InstanceReport) { i.Usage.DiskBytes += 60 << 20 }), true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := report.FiguresDiffer(old, c.now, report.Steps{Heartbeat: 30 * time.Second, Usage: true}); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
	soon := report.Steps{Heartbeat: 30 * time.Second}
	if report.FiguresDiffer(old, with(func(i *fleet.InstanceReport) { i.Usage.CPU = 0 }), soon) {
		t.Error("another use of the host is told before its time")
	}
	if !report.FiguresDiffer(old, with(func(i *fleet.InstanceReport) { i.Usage = fleet.Usage{} }), soon) {
		t.Error("a use of the host that is not known any more is not told at once")
	}
}

func TestWhatInstancesUseTakesAQuarterOfWhatAllNodesMaySend(t *testing.T) {
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

func TestAllNodesTogetherStayBelowAHundredReportsASecond(t *testing.T) {
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

func TestLargeReportsArePausedAfterInProportion(t *testing.T) {
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
