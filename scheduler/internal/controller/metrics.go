package controller

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/telemetry"
)

// Metrics count the scheduler's work. A nil Metrics counts nothing.
type Metrics struct {
	placements, conflicts, notes prometheus.Counter
	seconds                      prometheus.Observer
}

// NewMetrics registers the scheduler's metrics.
func NewMetrics(m *telemetry.Metrics) (*Metrics, error) {
	out := &Metrics{
		placements: m.Counter("placements", "Placements committed.").WithLabelValues(),
		notes:      m.Counter("pending_notes", "Reasons for waiting written.").WithLabelValues(),
		conflicts:  m.Counter("conflicts", "Parts of transactions, one per node or note, that met a change.").WithLabelValues(),
		seconds:    m.Histogram("commit", "seconds", "Time of a placement transaction.", prometheus.DefBuckets).WithLabelValues(),
	}
	return out, m.Err()
}

func (m *Metrics) commit(f *bulk) {
	if m == nil || f.resolves != nil {
		return
	}
	m.seconds.Observe(f.took.Seconds())
	if f.err != nil {
		return
	}
	for i, p := range f.parts {
		switch {
		case !f.done[i]:
			m.conflicts.Inc()
		case p.note != nil:
			m.notes.Inc()
		default:
			m.placements.Add(float64(len(p.entries)))
		}
	}
}
