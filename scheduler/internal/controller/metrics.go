package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/telemetry"
)

// Metrics count what the scheduler does. A nil Metrics counts nothing.
type Metrics struct {
	placements, conflicts, notes prometheus.Counter
	seconds                      prometheus.Observer
}

// NewMetrics registers the scheduler's metrics.
func NewMetrics(m *telemetry.Metrics) (*Metrics, error) {
	out := &Metrics{
		placements: m.Counter("placements", "Placements committed.").WithLabelValues(),
		notes:      m.Counter("pending_notes", "Reasons for waiting written.").WithLabelValues(),
		conflicts:  m.Counter("conflicts", "Transactions that met a change.").WithLabelValues(),
		seconds:    m.Histogram("commit", "seconds", "Time of a placement transaction.", prometheus.DefBuckets).WithLabelValues(),
	}
	return out, m.Err()
}

func (m *Metrics) commit(took time.Duration, b *batch, err error) {
	if m == nil {
		return
	}
	m.seconds.Observe(took.Seconds())
	switch {
	case err == nil:
		m.placements.Add(float64(len(b.placed)))
		m.notes.Add(float64(len(b.noted)))
	case errs.Is(err, errs.Conflict), errs.Is(err, errs.AlreadyExists):
		m.conflicts.Inc()
	}
}
