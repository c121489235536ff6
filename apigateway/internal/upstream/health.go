package upstream

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/telemetry"
)

// The kinds of upstreams in metrics.
const (
	kindAgent     = "agent"
	kindFigures   = "agent-figures"
	kindTemplates = "templatesvc"
	kindScheduler = "scheduler"
	kindEnforcer  = "enforcer"
)

// Health reports on all upstreams: metrics with the state of breakers and failed calls by kind, and log
// records when an upstream stops answering or answers again. Create it with NewHealth.
type Health struct {
	log      *slog.Logger
	failures *prometheus.CounterVec
	of       map[string]*breakers
}

// NewHealth registers the metrics. Errors are in m.Err.
func NewHealth(m *telemetry.Metrics, log *slog.Logger) *Health {
	h := &Health{
		log: log, of: map[string]*breakers{},
		failures: m.Counter("upstream_failures", "Calls to other services that failed because of the other service.", "upstream"),
	}
	for _, kind := range []string{kindAgent, kindFigures, kindTemplates, kindScheduler, kindEnforcer} {
		h.of[kind] = h.breakers(kind)
	}
	m.GaugesFunc("upstream", "breakers", "Circuit breakers of other services that were called in the last minutes, by state: open ones let no call through, half-open ones the next.",
		[]string{"upstream", "state"}, h.states)
	return h
}

// breakers returns the breakers of a kind.
func (h *Health) breakers(kind string) *breakers {
	return &breakers{
		now: time.Now, by: map[string]*kept{}, failed: h.failures.WithLabelValues(kind).Inc,
		turned: func(name string, open bool) {
			if open {
				h.log.Warn("an upstream does not answer: calls to it are suspended for a moment", "upstream", kind, "who", name)
				return
			}
			h.log.Info("an upstream answers again", "upstream", kind, "who", name)
		},
	}
}

// states reports the number of breakers by kind and state.
func (h *Health) states(tell func(v float64, labels ...string)) {
	for kind, b := range h.of {
		for state, n := range b.states() {
			tell(float64(n), kind, state.String())
		}
	}
}
