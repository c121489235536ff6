package nodeagent

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/driver"
)

const (
	// shownInstances bounds the instances with metrics of their own, and shownGroups the
	// groups.
	shownInstances = 500
	shownGroups    = 200
	// otherGroups is the label of all further groups. No group can have this name.
	otherGroups = "(others)"
)

// usageMetrics reports the resource usage of running instances by group and by instance.
type usageMetrics struct {
	live func() map[fleet.InstanceID]driver.Live

	instance, group figureDescs
	uptime          *prometheus.Desc
}

// figureDescs describe the metrics of one kind of object.
type figureDescs struct{ memory, cpu, disk, players *prometheus.Desc }

func newUsageMetrics(live func() map[fleet.InstanceID]driver.Live) *usageMetrics {
	of := func(kind, what string, labels ...string) figureDescs {
		desc := func(name, help string) *prometheus.Desc {
			return prometheus.NewDesc("orrery_nodeagent_"+kind+"_"+name, help, labels, nil)
		}
		return figureDescs{
			memory:  desc("memory_bytes", "Resident memory of the processes of "+what+"; absent while unknown."),
			cpu:     desc("cpu_cores", "CPU cores used by "+what+", averaged over the last seconds; absent while unknown."),
			disk:    desc("disk_bytes", "Disk space of the directory of "+what+"; absent while unknown."),
			players: desc("players", "Players on "+what+"; absent while unknown."),
		}
	}
	const known = ", counting those whose figure is known"
	return &usageMetrics{
		live:     live,
		instance: of("instance", "a running instance", "group", "name"),
		group:    of("group", "all running instances of a group on this node together"+known, "group"),
		uptime: prometheus.NewDesc("orrery_nodeagent_instance_uptime_seconds",
			"Seconds since the process of a running instance was started.", []string{"group", "name"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *usageMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []figureDescs{m.instance, m.group} {
		ch <- d.memory
		ch <- d.cpu
		ch <- d.disk
		ch <- d.players
	}
	ch <- m.uptime
}

// Collect implements prometheus.Collector.
func (m *usageMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, known bool, labels ...string) {
		if known {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
		}
	}
	var running []driver.Live
	for _, l := range m.live() {
		if l.Status.PID != 0 {
			running = append(running, l)
		}
	}
	slices.SortFunc(running, func(a, b driver.Live) int {
		return cmp.Or(cmp.Compare(a.Status.Group, b.Status.Group), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Status.Instance, b.Status.Instance))
	})
	sums, names, now := map[string]*reports.InstanceReport{}, map[[2]string]bool{}, time.Now()
	for _, l := range running {
		group := string(l.Status.Group)
		if sums[group] == nil && len(sums) >= shownGroups {
			group = otherGroups
		}
		if sums[group] == nil {
			sums[group] = &reports.InstanceReport{}
		}
		add(sums[group], l.Report)
		key := [2]string{string(l.Status.Group), l.Name}
		if names[key] || len(names) >= shownInstances { // an orphan may have the name of its successor
			continue
		}
		names[key] = true
		m.instance.show(gauge, l.Report, key[0], key[1])
		gauge(m.uptime, max(0, now.Sub(l.Status.StartedAt)).Seconds(), !l.Status.StartedAt.IsZero(), key[0], key[1])
	}
	for group, sum := range sums {
		m.group.show(gauge, *sum, group)
	}
}

// add adds the figures of an instance to those of its group.
func add(sum *reports.InstanceReport, r reports.InstanceReport) {
	s, u := &sum.Usage, r.Usage
	s.MemoryBytes += u.MemoryBytes
	s.CPU, s.CPUKnown = s.CPU+u.CPU, s.CPUKnown || u.CPUKnown
	s.DiskBytes, s.DiskKnown = s.DiskBytes+u.DiskBytes, s.DiskKnown || u.DiskKnown
	sum.Players, sum.PlayersKnown = sum.Players+r.Players, sum.PlayersKnown || r.PlayersKnown
}

// show emits the figures that are known.
func (d figureDescs) show(gauge func(d *prometheus.Desc, v float64, known bool, labels ...string), r reports.InstanceReport, labels ...string) {
	gauge(d.memory, float64(r.Usage.MemoryBytes), r.Usage.MemoryBytes > 0, labels...)
	gauge(d.cpu, r.Usage.CPU/100, r.Usage.CPUKnown, labels...)
	gauge(d.disk, float64(r.Usage.DiskBytes), r.Usage.DiskKnown, labels...)
	gauge(d.players, float64(r.Players), r.PlayersKnown, labels...)
}
