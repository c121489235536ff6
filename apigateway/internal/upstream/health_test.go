package upstream

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/telemetry"
)

// gauges returns a metric's values by its label values, upstream first. Counters with value 0 are left
// out.
func gauges(t *testing.T, reg *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range all {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			key := ""
			for _, l := range m.GetLabel() { // sorted by name
				key = strings.TrimSpace(l.GetValue() + " " + key)
			}
			if v := m.GetCounter().GetValue(); v > 0 {
				out[key] = v
			}
			if m.GetGauge() != nil {
				out[key] = m.GetGauge().GetValue()
			}
		}
	}
	return out
}

func TestTheStateOfEachUpstreamIsInTheMetricsAndItsChangesInTheLog(t *testing.T) {
	reg, log := prometheus.NewRegistry(), &bytes.Buffer{}
	h := NewHealth(telemetry.NewMetrics(reg, "apigateway"), slog.New(slog.NewTextHandler(log, nil)))
	b := h.of[kindAgent]
	now := time.Now()
	b.now = func() time.Time { return now }
	_, _ = through(b, "n1", "the agent of node n1", func() (int, error) { return 1, nil })
	for range tripAfter {
		_, _ = through(b, "n2", "the agent of node n2", fails(silent))
	}
	_, _ = through(b, "n2", "the agent of node n2", fails(silent))                   // not tried
	_, _ = through(b, "n1", "the agent of node n1", fails(away))                     // not the agent's fault
	_, _ = beside(h.of[kindTemplates], "all", "the template service", fails(silent)) // reported, but opens no breaker
	want := map[string]float64{
		"agent closed": 1, "agent half-open": 0, "agent open": 1,
		"agent-figures closed": 0, "agent-figures half-open": 0, "agent-figures open": 0,
		"enforcer closed": 0, "enforcer half-open": 0, "enforcer open": 0,
		"scheduler closed": 0, "scheduler half-open": 0, "scheduler open": 0,
		"templatesvc closed": 1, "templatesvc half-open": 0, "templatesvc open": 0,
	}
	if diff := cmp.Diff(want, gauges(t, reg, "orrery_apigateway_upstream_breakers")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]float64{"agent": tripAfter, "templatesvc": 1}, gauges(t, reg, "orrery_apigateway_upstream_failures_total")); diff != "" {
		t.Error(diff)
	}
	if got := log.String(); strings.Count(got, "does not answer") != 1 || !strings.Contains(got, `who="the agent of node n2"`) {
		t.Errorf("the log has\n%s", got)
	}
	now = now.Add(forgetAfter)
	if got := b.states(); got[0] != 0 || len(b.by) != 0 {
		t.Errorf("%v are kept that nobody uses", got)
	}
}
