package nodeagent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/series"
	"github.com/orreryhq/orrery/nodeagent"
)

// usageMetrics are the metrics of groups and instances, by name and labels.
func usageMetrics(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		name, ok := strings.CutPrefix(f.GetName(), "orrery_nodeagent_")
		if !ok || !strings.HasPrefix(name, "instance_") && !strings.HasPrefix(name, "group_") {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := ""
			for _, l := range m.GetLabel() {
				labels += fmt.Sprintf(" %s=%s", l.GetName(), l.GetValue())
			}
			out[name+labels] = m.GetGauge().GetValue()
		}
	}
	return out
}

func TestUsageIsReportedEverywhere(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	reg := prometheus.NewRegistry()
	s.start(func(c *nodeagent.Config) { taking(c); c.Metrics = reg })
	id := s.id(1)
	s.online(id, basic("head -c 3m /dev/zero >world; exec cat"))
	await.That(t, "memory, CPU and disk in the node's report", func() string {
		f, _, err := s.figures(id)
		u := f.Usage
		return await.Unless(err == nil && u.MemoryBytes > 0 && u.CPUKnown && u.DiskBytes >= 3<<20 && !f.PlayersKnown, "%+v, %v", f, err)
	})
	if i, err := s.api().Instance(t.Context(), id); err != nil || i.Usage.MemoryBytes == 0 || !i.Usage.CPUKnown || i.Usage.DiskBytes < 3<<20 || i.UptimeMillis == 0 {
		t.Errorf("%+v, %v", i, err)
	}
	got := usageMetrics(t, reg)
	for _, name := range []string{
		"instance_memory_bytes group=lobby name=lobby-1", "instance_cpu_cores group=lobby name=lobby-1", "instance_disk_bytes group=lobby name=lobby-1",
		"instance_uptime_seconds group=lobby name=lobby-1", "group_memory_bytes group=lobby", "group_cpu_cores group=lobby", "group_disk_bytes group=lobby",
	} {
		if v, there := got[name]; !there || v <= 0 && !strings.Contains(name, "cpu") {
			t.Errorf("%s is %v, %v", name, v, there)
		}
	}
	if len(got) != 7 {
		t.Errorf("figures that nobody knows are shown: %v", got)
	}
	w, err := series.ParseWindow("15m", "360")
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "a past of memory, CPU, disk and uptime", func() string {
		f, err := s.api().Series(t.Context(), id, w)
		if err != nil {
			return err.Error()
		}
		for _, name := range []string{"usedMemoryMb", "usedCpu", "usedDiskMb", "uptimeMs"} {
			if !slices.ContainsFunc(f.Series[name], func(v *float64) bool { return v != nil }) {
				return name + " has none"
			}
		}
		return ""
	})

	s.order(id, 1, fleet.OrderStop)
	s.awaitState(id, 1, fleet.Stopped)
	await.That(t, "no figures of one that does not run", func() string {
		_, _, err := s.figures(id)
		return await.Unless(err != nil && len(usageMetrics(t, reg)) == 0, "%v in the store, %v in the metrics", err, usageMetrics(t, reg))
	})
}
