package telemetry

import (
	"errors"
	"regexp"
	"runtime"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/orreryhq/orrery/libs/errs"
)

// NewRegistry returns a process's registry with the collectors of the Go runtime and the process,
// and orrery_<service>_build_info with the version.
func NewRegistry(service, version string) (*prometheus.Registry, error) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg, service)
	m.register("", collectors.NewGoCollector())
	m.register("", collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.Gauge("build", "info", "Always 1; the labels say what runs.", "version", "go").
		WithLabelValues(version, runtime.Version()).Set(1)
	return reg, m.Err()
}

// Name returns orrery_<service>_<noun>_<unit>. The error is Invalid if a part is not lower-case
// words joined by underscores, or if the unit is not a base unit (seconds, bytes, ratio, or the
// plural of the counted things).
func Name(service, noun, unit string) (string, error) {
	word := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	name := strings.Join([]string{"orrery", service, noun, unit}, "_")
	for _, part := range []string{service, noun, unit} {
		if !word.MatchString(part) {
			return name, errs.New(errs.Invalid, "metric %s: %q must be lower-case words joined by underscores", name, part)
		}
	}
	if advice := unitAdvice(unit); advice != "" {
		return name, errs.New(errs.Invalid, "metric %s: %s", name, advice)
	}
	return name, nil
}

// unitAdvice returns what is wrong with a unit, or "".
func unitAdvice(unit string) string {
	switch unit {
	case "ns", "us", "ms", "s", "nanoseconds", "microseconds", "milliseconds", "minutes", "hours", "days":
		return "times are in seconds"
	case "kb", "mb", "gb", "kib", "mib", "gib", "kilobytes", "megabytes", "gigabytes":
		return "sizes are in bytes"
	case "percent", "pct":
		return "shares are a ratio from 0 to 1"
	case "count", "sum", "bucket":
		return "the suffix " + unit + " belongs to histograms; name what is counted"
	}
	return ""
}

// Metrics creates the metrics of one service. It collects mistakes in names: a service creates all
// its metrics first and then checks Err once. A metric with a mistake works but is not exported.
// It is not safe for concurrent use.
type Metrics struct {
	reg     prometheus.Registerer
	service string
	errs    []error
}

// NewMetrics returns a Metrics for names orrery_<service>_…. Several services may share a
// registry.
func NewMetrics(reg prometheus.Registerer, service string) *Metrics {
	return &Metrics{reg: reg, service: service}
}

// Err returns the mistakes made so far, joined.
func (m *Metrics) Err() error { return errors.Join(m.errs...) }

// define checks a metric and returns its name. ok is false if it must not be registered.
func (m *Metrics) define(typ, noun, unit, help string) (name string, ok bool) {
	name, err := Name(m.service, noun, unit)
	isCounter := typ == "counter"
	switch {
	case err != nil:
	case help == "":
		err = errs.New(errs.Invalid, "metric %s has no help", name)
	case isCounter != (unit == "total"):
		err = errs.New(errs.Invalid, "metric %s is a %s: all counters, and only counters, must end in total", name, typ)
	}
	if err != nil {
		m.errs = append(m.errs, err)
		return name, false
	}
	return name, true
}

func (m *Metrics) register(name string, c prometheus.Collector) {
	if err := m.reg.Register(c); err != nil {
		m.errs = append(m.errs, errs.WrapAs(errs.Invalid, strings.TrimSpace("metric "+name), err))
	}
}

// Counter creates orrery_<service>_<noun>_total. A unit is part of the noun: "sent_bytes".
func (m *Metrics) Counter(noun, help string, labels ...string) *prometheus.CounterVec {
	name, ok := m.define("counter", noun, "total", help)
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	if ok {
		m.register(name, c)
	}
	return c
}

// Gauge creates orrery_<service>_<noun>_<unit>.
func (m *Metrics) Gauge(noun, unit, help string, labels ...string) *prometheus.GaugeVec {
	name, ok := m.define("gauge", noun, unit, help)
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	if ok {
		m.register(name, g)
	}
	return g
}

// GaugeFunc creates orrery_<service>_<noun>_<unit>. f is called on every scrape. It must be fast
// and safe for concurrent use.
func (m *Metrics) GaugeFunc(noun, unit, help string, f func() float64) {
	if name, ok := m.define("gauge", noun, unit, help); ok {
		m.register(name, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f))
	}
}

// GaugesFunc creates orrery_<service>_<noun>_<unit> with labels. f is called on every scrape and
// must call tell once per set of labels. It must be fast and safe for concurrent use.
func (m *Metrics) GaugesFunc(noun, unit, help string, labels []string, f func(tell func(v float64, labels ...string))) {
	if name, ok := m.define("gauge", noun, unit, help); ok {
		m.register(name, gauges{prometheus.NewDesc(name, help, labels, nil), f})
	}
}

// gauges is a collector that calls read on every scrape.
type gauges struct {
	desc *prometheus.Desc
	read func(tell func(v float64, labels ...string))
}

// Describe implements prometheus.Collector.
func (g gauges) Describe(to chan<- *prometheus.Desc) { to <- g.desc }

// Collect implements prometheus.Collector.
func (g gauges) Collect(to chan<- prometheus.Metric) {
	g.read(func(v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, v, labels...)
	})
}

// Histogram creates orrery_<service>_<noun>_<unit>. Nil buckets mean Prometheus's defaults, 5 ms
// to 10 s.
func (m *Metrics) Histogram(noun, unit, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	name, ok := m.define("histogram", noun, unit, help)
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	if ok {
		m.register(name, h)
	}
	return h
}
