package telemetry_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/config"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/telemetry"
)

func TestTheDefaultSettingsAreValid(t *testing.T) {
	var c telemetry.Config
	if err := config.Defaults(&c); err != nil {
		t.Fatal(err)
	}
	if c.AdminAddress != telemetry.DefaultAdminAddress {
		t.Errorf("admin.address defaults to %q", c.AdminAddress)
	}
}

func TestWrongSettingsAreNamed(t *testing.T) {
	c := telemetry.Config{LogLevel: "loud", LogFormat: "xml", AdminAddress: "8080"}
	var fields []string
	for _, err := range c.Validate() {
		fields = append(fields, errs.FieldOf(err))
	}
	if diff := cmp.Diff([]string{"log.level", "log.format", "admin.address"}, fields); diff != "" {
		t.Error(diff)
	}
}

func TestEveryLineNamesServiceAndReplica(t *testing.T) {
	var out bytes.Buffer
	log, err := telemetry.NewLogger(telemetry.LogOptions{Service: "enforcer", Replica: "a1", Level: "warn", Format: "json", Writer: &out})
	if err != nil {
		t.Fatal(err)
	}
	log.Info("quiet")
	log.Warn("loud", "group", "lobby")
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	delete(line, "time")
	want := map[string]any{"level": "WARN", "msg": "loud", "service": "enforcer", "replica": "a1", "group": "lobby"}
	if diff := cmp.Diff(want, line); diff != "" {
		t.Error(diff)
	}
}

func TestNewLoggerRejectsUnknownSettings(t *testing.T) {
	for _, o := range []telemetry.LogOptions{{Level: "loud", Format: "text"}, {Level: "info", Format: "xml"}} {
		if _, err := telemetry.NewLogger(o); !errs.Is(err, errs.Invalid) {
			t.Errorf("%+v: got %v", o, err)
		}
	}
}

func TestName(t *testing.T) {
	cases := []struct{ name, service, noun, unit, want, problem string }{
		{"a base unit", "scheduler", "placement_duration", "seconds", "orrery_scheduler_placement_duration_seconds", ""},
		{"what is counted", "enforcer", "pending", "instances", "orrery_enforcer_pending_instances", ""},
		{"no milliseconds", "scheduler", "commit", "ms", "", "times are in seconds"},
		{"no mebibytes", "nodeagent", "cache", "mib", "", "sizes are in bytes"},
		{"no percent", "nodeagent", "cpu", "percent", "", "ratio from 0 to 1"},
		{"no histogram suffix", "nodeagent", "instances", "count", "", "belongs to histograms"},
		{"no capitals", "nodeagent", "Instances", "bytes", "", "lower-case"},
		{"no empty part", "nodeagent", "", "bytes", "", "lower-case"},
		{"no double underscore", "nodeagent", "a__b", "bytes", "", "lower-case"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := telemetry.Name(c.service, c.noun, c.unit)
			if c.problem == "" {
				if err != nil || got != c.want {
					t.Errorf("got %q, %v", got, err)
				}
			} else if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("got %v, want %q", err, c.problem)
			}
		})
	}
}

func TestMetricsCollectTheirMistakes(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := telemetry.NewMetrics(reg, "scheduler")
	m.Counter("placements", "Placements committed.", "result").WithLabelValues("ok").Inc()
	m.Histogram("commit_duration", "seconds", "Time of a commit.", nil).WithLabelValues().Observe(1)
	m.GaugeFunc("queue", "keys", "Keys waiting.", func() float64 { return 3 })
	if err := m.Err(); err != nil {
		t.Fatal(err)
	}

	m.Gauge("lost", "total", "Nodes lost.").WithLabelValues().Set(1)
	m.Counter("placements", "The same again.", "result").WithLabelValues("ok").Inc()
	m.Gauge("free", "mb", "Memory.").WithLabelValues().Set(1)
	m.Gauge("nodes", "known", "").WithLabelValues().Set(1)
	for _, want := range []string{"only counters, must end in total", "placements_total", "sizes are in bytes", "has no help"} {
		if err := m.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}

	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	want := []string{"orrery_scheduler_commit_duration_seconds", "orrery_scheduler_placements_total", "orrery_scheduler_queue_keys"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}

func TestServicesOfOneProcessShareARegistry(t *testing.T) {
	reg, err := telemetry.NewRegistry("standalone", "v1")
	if err != nil {
		t.Fatal(err)
	}
	for _, service := range []string{"scheduler", "enforcer"} {
		m := telemetry.NewMetrics(reg, service)
		m.Counter("decisions", "Decisions taken.")
		if err := m.Err(); err != nil {
			t.Error(err)
		}
	}
}

func TestGaugesAreReadOnScrape(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := telemetry.NewMetrics(reg, "test")
	n := 1.0
	m.GaugesFunc("door", "hinges", "Hinges by door.", []string{"door"}, func(tell func(v float64, labels ...string)) { tell(n, "front") })
	if err := m.Err(); err != nil {
		t.Fatal(err)
	}
	n = 2
	got, err := reg.Gather()
	if err != nil || len(got) != 1 || len(got[0].GetMetric()) != 1 {
		t.Fatalf("gathered %v: %v", got, err)
	}
	one := got[0].GetMetric()[0]
	if got[0].GetName() != "orrery_test_door_hinges" || one.GetGauge().GetValue() != 2 || one.GetLabel()[0].GetValue() != "front" {
		t.Errorf("gathered %v", got[0])
	}
}
