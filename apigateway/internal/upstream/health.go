package upstream

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/telemetry"
)

// The kinds of upstreams, as metrics name them.
const (
	kindAgent     = "agent"
	kindFigures   = "agent-figures"
	kindTemplates = "templatesvc"
	kindScheduler = "scheduler"
)

// Health is what is told of all upstreams: in metrics how many breakers are in which state
// and how many calls failed, by kind, and in the log each upstream that stops answering or
// answers again. Make it with NewHealth.
type Health struct {
	log      *slog.Logger
	failures *prometheus.CounterVec
	of       map[string]*breakers
}

// NewHealth makes the metrics of all upstreams. Mistakes are in m.Err.
func NewHealth(m *telemetry.Metrics, log *slog.Logger) *Health {
	h := &Health{
		log: log, of: map[string]*breakers{},
		failures: m.Counter("upstream_failures", "Calls to other services that failed by the other side's fault.", "upstream"),
	}
	for _, kind := range []string{kindAgent, kindFigures, kindTemplates, kindScheduler} {
		h.of[kind] = h.breakers(kind)
	}
	m.GaugesFunc("upstream", "breakers", "Circuit breakers of other services that were called in the last minutes, by state: open ones let no call through, half-open ones the next.",
		[]string{"upstream", "state"}, h.states)
	return h
}

// breakers are those of a kind.
func (h *Health) breakers(kind string) *breakers {
	return &breakers{
		now: time.Now, by: map[string]*kept{}, failed: h.failures.WithLabelValues(kind).Inc,
		turned: func(name string, open bool) {
			if open {
				h.log.Warn("an upstream does not answer: for a moment it is not asked", "upstream", kind, "who", name)
				return
			}
			h.log.Info("an upstream answers again", "upstream", kind, "who", name)
		},
	}
}

// states tells the number of breakers by kind and state.
func (h *Health) states(tell func(v float64, labels ...string)) {
	for kind, b := range h.of {
		for state, n := range b.states() {
			tell(float64(n), kind, state.String())
		}
	}
}
