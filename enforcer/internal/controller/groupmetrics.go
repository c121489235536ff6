package controller

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// groupMetrics collects the metrics of the owned groups at scrape time.
type groupMetrics struct {
	c                                          *Controller
	paused, missing, target, instances, others *prometheus.Desc
}

func newGroupMetrics(c *Controller) *groupMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("orrery_"+Service+"_"+name, help, labels, nil)
	}
	return &groupMetrics{
		c:         c,
		paused:    desc("group_paused", "1 while the enforcer has paused an owned group after repeated crashes, else 0.", "group"),
		missing:   desc("group_missing", "Instances that an owned group lacks to its target. Only instances that are ONLINE and not asked to stop count.", "group"),
		target:    desc("group_target", "Instances that an owned group shall have: its minimum, or more because of its load.", "group"),
		instances: desc("instances", "Instances of an owned group by state. States without instances are absent.", "group", "state"),
		others:    desc("unlisted_groups", "Owned groups without metrics of their own, because there are too many."),
	}
}

// Describe implements prometheus.Collector.
func (m *groupMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.paused, m.missing, m.target, m.instances, m.others} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *groupMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	groups, more := m.c.groups(m.c.now())
	for _, g := range groups {
		name, paused := string(g.name), 0.0
		if g.paused {
			paused = 1
		}
		gauge(m.paused, paused, name)
		gauge(m.missing, float64(g.missing), name)
		gauge(m.target, float64(g.target), name)
		for state, n := range g.states {
			gauge(m.instances, float64(n), name, string(state))
		}
	}
	gauge(m.others, float64(more))
}

// maxGroupMetrics limits the number of groups with their own metrics.
const maxGroupMetrics = 500

// groupFigures are the values for one group.
type groupFigures struct {
	name   fleet.GroupName
	paused bool
	// target is how many instances the group shall have, and missing how many it lacks to that.
	target, missing int
	states          map[fleet.State]int
}

// groups returns the values of the owned groups and the number of omitted groups. Paused
// groups come first, then those that lack the most instances.
func (c *Controller) groups(now time.Time) (all []groupFigures, more int) {
	snap, own := c.view.Snapshot(), c.replica.Owned()
	for name, g := range snap.Groups.All() {
		if _, owned := own.Fence(name); owned {
			all = append(all, c.groupFigures(snap, snap.Whole(g), now))
		}
	}
	slices.SortStableFunc(all, func(a, b groupFigures) int {
		if a.paused != b.paused {
			if a.paused {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.missing, a.missing)
	})
	listed := min(len(all), maxGroupMetrics)
	return all[:listed], len(all) - listed
}

func (c *Controller) groupFigures(snap *view.Snapshot, g *fleet.Group, now time.Time) groupFigures {
	f := groupFigures{name: g.Name, target: snap.Target(g), states: map[fleet.State]int{}}
	serving := 0
	for i := range snap.GroupInstances(g.Name) {
		f.states[i.State()]++
		if state := i.State(); (state == fleet.Online || state == fleet.Sleeping) && i.Intent.Desired == fleet.DesiredRunning && !i.Intent.Warm {
			serving++
		}
	}
	if !g.Deleting && !snap.MaintenanceOf(g).On && snap.Overlaid(g).Spec.Scaling.Mode != fleet.ScalingManual {
		f.missing = max(0, f.target-serving)
	}
	f.paused = c.pausedGroup(snap, g, now)
	return f
}
