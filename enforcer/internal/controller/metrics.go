package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/reconcile"
	"github.com/orreryhq/orrery/libs/telemetry"
)

// metrics are the controller's figures.
type metrics struct {
	actions   *prometheus.CounterVec
	reconcile prometheus.Observer
}

var _ reconcile.Observer = (*metrics)(nil)

func newMetrics(reg prometheus.Registerer, c *Controller) (*metrics, error) {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	t := telemetry.NewMetrics(reg, Service)
	m := &metrics{
		actions: t.Counter("actions", "Actions committed, by kind.", "kind"),
		reconcile: t.Histogram("reconcile", "seconds", "Time from taking a group up to having its actions committed.",
			prometheus.ExponentialBuckets(0.0001, 4, 9)).WithLabelValues(),
	}
	for _, k := range plan.Kinds {
		m.actions.WithLabelValues(string(k))
	}
	c.replica.Export(t)
	t.GaugeFunc("paused", "groups", "Owned groups in which nothing is started after repeated crashes.", func() float64 {
		return float64(c.paused(c.now()))
	})
	return m, t.Err()
}

// Reconciled takes the time of one reconciliation.
func (m *metrics) Reconciled(_, took time.Duration, _ error) { m.reconcile.Observe(took.Seconds()) }

// paused counts the owned groups in a crash-loop pause.
func (c *Controller) paused(now time.Time) int {
	snap, own, n := c.view.Snapshot(), c.replica.Owned(), 0
	for name, loop := range snap.CrashLoops.All() {
		_, owned := own.Fence(name)
		g, ok := snap.Groups.Get(name)
		if !ok || !owned {
			continue
		}
		if c.stamps.loop(loop, now).EndsAt(c.stamps.group(g, now), c.ancestors(snap, g, now)).After(now) {
			n++
		}
	}
	return n
}
