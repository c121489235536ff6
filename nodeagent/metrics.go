package nodeagent

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/content/backup"
	"github.com/orreryhq/orrery/nodeagent/internal/content/fileedit"
	"github.com/orreryhq/orrery/nodeagent/internal/controller"
	"github.com/orreryhq/orrery/nodeagent/internal/node/membership"
	"github.com/orreryhq/orrery/nodeagent/internal/node/orphan"
)

// metrics collects the agent's metrics on each scrape.
type metrics struct {
	controller *controller.Controller
	member     *membership.Member
	keeper     *orphan.Keeper
	files      *fileedit.Editor
	kept       *backup.Keeper

	instances, orphans, restarts, unwritten, reachable, silence, versions, versionBytes, backups, backupBytes *prometheus.Desc
}

func registerMetrics(reg prometheus.Registerer, c *controller.Controller, m *membership.Member, k *orphan.Keeper, f *fileedit.Editor, b *backup.Keeper) error {
	if reg == nil {
		return nil
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("orrery_nodeagent_"+name, help, labels, nil)
	}
	if err := reg.Register(newUsageMetrics(c.Live)); err != nil {
		return err
	}
	return reg.Register(&metrics{
		controller: c, member: m, keeper: k, files: f, kept: b,
		instances: desc("instances", "Instances this node knows, by state.", "state"),
		orphans:   desc("orphans", "Instances that run without a record in etcd."),
		restarts:  desc("local_restarts_total", "Restarts in place that the agent started by itself."),
		unwritten: desc("unwritten_statuses", "Statuses that are not yet written to etcd."),
		reachable: desc("etcd_reachable", "1 if etcd answers the node's keep-alives, otherwise 0."),
		versions:  desc("file_versions", "Kept previous contents of files that users changed."), versionBytes: desc("file_versions_bytes", "Their size in bytes."),
		backups: desc("backups", "Backups of static instances on this node."), backupBytes: desc("backups_bytes", "The size of their archives in bytes."),
		silence: desc("etcd_last_contact_seconds", "Seconds since etcd last answered a keep-alive; absent before the first answer."),
	})
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.instances, m.orphans, m.restarts, m.unwritten, m.reachable, m.silence, m.versions, m.versionBytes, m.backups, m.backupBytes} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counts := m.controller.Instances()
	for _, s := range fleet.States {
		gauge(m.instances, float64(counts[s]), string(s))
	}
	gauge(m.orphans, float64(m.controller.Orphans()+m.keeper.Strays()))
	ch <- prometheus.MustNewConstMetric(m.restarts, prometheus.CounterValue, float64(m.controller.LocalRestarts()))
	versions, bytes := m.files.Kept()
	gauge(m.versions, float64(versions))
	gauge(m.versionBytes, float64(bytes))
	backups, bytes := m.kept.Kept()
	gauge(m.backups, float64(backups))
	gauge(m.backupBytes, float64(bytes))
	unwritten, _ := m.controller.Unwritten()
	gauge(m.unwritten, float64(unwritten))
	now := time.Now()
	contact := m.member.Contact(now)
	reachable := 0.0
	if contact.Reachable {
		reachable = 1
	}
	gauge(m.reachable, reachable)
	if !contact.Last.IsZero() {
		gauge(m.silence, max(0, now.Sub(contact.Last).Seconds()))
	}
}
