package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/reconcile"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
)

// metrics are the controller's metrics.
type metrics struct {
	actions     *prometheus.CounterVec
	scalings    *prometheus.CounterVec
	deployments *prometheus.CounterVec
	webhooks    *prometheus.CounterVec
	moves       *prometheus.CounterVec
	reconcile   prometheus.Observer
}

// The directions of scalings.
const (
	up   = "up"
	down = "down"
)

// The results of calls of webhooks.
const (
	callSucceeded = "succeeded"
	callFailed    = "failed"
)

var _ reconcile.Observer = (*metrics)(nil)

func newMetrics(reg prometheus.Registerer, c *Controller) (*metrics, error) {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	t := telemetry.NewMetrics(reg, Service)
	m := &metrics{
		actions:     t.Counter("actions", "Actions committed, by kind.", "kind"),
		deployments: t.Counter("deployments", "Deployments that ended, by state.", "state"),
		moves:       t.Counter("moves", "Moves of instances to other nodes that ended, by result.", "result"),
		reconcile: t.Histogram("reconcile", "seconds", "Time from taking a group up to having its actions committed.",
			prometheus.ExponentialBuckets(0.0001, 4, 9)).WithLabelValues(),
	}
	m.scalings = t.Counter("scalings", "Changes of the number of instances because of the load or a policy of a group, by direction.", "direction")
	m.webhooks = t.Counter("webhook_calls", "Calls of the webhooks of scaling policies, by result.", "result")
	for _, result := range []string{callSucceeded, callFailed} {
		m.webhooks.WithLabelValues(result)
	}
	for _, direction := range []string{up, down} {
		m.scalings.WithLabelValues(direction)
	}
	for _, k := range plan.Kinds {
		m.actions.WithLabelValues(string(k))
	}
	for _, s := range [...]deployment.State{deployment.Completed, deployment.Failed, deployment.RolledBack, deployment.Canceled} {
		m.deployments.WithLabelValues(string(s))
	}
	for _, s := range [...]move.Step{move.Done, move.Failed, move.Canceled} {
		m.moves.WithLabelValues(string(s))
	}
	c.replica.Export(t)
	t.GaugeFunc("paused", "groups", "Owned groups in which nothing is started after repeated crashes.", func() float64 {
		return float64(c.paused(c.now()))
	})
	if err := reg.Register(newGroupMetrics(c)); err != nil {
		return nil, errs.Wrap("controller.newMetrics", err)
	}
	return m, t.Err()
}

// Reconciled implements reconcile.Observer.
func (m *metrics) Reconciled(_, took time.Duration, _ error) { m.reconcile.Observe(took.Seconds()) }

// pausedGroup reports whether a group is in a crash-loop pause.
func (c *Controller) pausedGroup(snap *view.Snapshot, g *fleet.Group, now time.Time) bool {
	loop, ok := snap.CrashLoops.Get(g.Name)
	return ok && c.stamps.loop(loop, now).EndsAt(c.stamps.group(g, now), c.ancestors(snap, g, now)).After(now)
}

// paused counts the owned groups in a crash-loop pause.
func (c *Controller) paused(now time.Time) int {
	snap, own, n := c.view.Snapshot(), c.replica.Owned(), 0
	for name := range snap.CrashLoops.All() {
		_, owned := own.Fence(name)
		if g, ok := snap.Groups.Get(name); ok && owned && c.pausedGroup(snap, g, now) {
			n++
		}
	}
	return n
}
