package controller

import (
	"fmt"
	"log/slog"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// figures returns the nonzero values of counters and gauges and the counts of histograms.
// The keys have the label values after the name.
func figures(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	maps.DeleteFunc(out, func(_ string, v float64) bool { return v == 0 })
	return out
}

func TestMetricsCountWhatWasDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	reg := prometheus.NewRegistry()
	l := plan.DefaultLimits()
	l.CrashLimit = 1
	v := view.New(w.client, nil, Kinds()...)
	c, err := New(Config{Store: w.client, View: v, Log: slog.New(slog.DiscardHandler), Metrics: reg, Replica: "a", Limits: l})
	if err != nil {
		t.Fatal(err)
	}
	w.background(v.Run)
	stop := w.background(c.Run)
	w.group("lobby", minimum(2))
	all := w.untilLiving("lobby", 2)
	w.online(all[0].Intent.ID)
	w.intent(all[0].Intent.ID, stopped)
	w.untilOrder(all[0].Intent.ID, fleet.OrderStop)
	all = w.untilLiving("lobby", 2)
	w.crash(all[0].Intent.ID)
	s := w.until("a pause", func(s *view.Snapshot) bool { _, ok := s.CrashLoops.Get("lobby"); return ok })
	if _, err := v.WaitRev(t.Context(), s.Rev); err != nil {
		t.Fatal(err)
	}
	owned := figures(t, reg)["orrery_enforcer_owned_shards"]
	if live := figures(t, reg)["orrery_enforcer_live_replicas"]; live != 1 {
		t.Errorf("%v replicas live, want 1", live)
	}
	paused := figures(t, reg)["orrery_enforcer_paused_groups"]
	if owned != fleet.ShardCount || paused != 1 {
		t.Errorf("%v shards owned and %v groups paused, want %d and 1", owned, paused, fleet.ShardCount)
	}
	for name, want := range map[string]float64{
		"orrery_enforcer_group_paused lobby": 1, "orrery_enforcer_group_missing lobby": 2,
		"orrery_enforcer_instances lobby CRASHED": 1, "orrery_enforcer_instances lobby ONLINE": 1, "orrery_enforcer_instances lobby PENDING": 1,
	} {
		if got := figures(t, reg)[name]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	stop()
	got := figures(t, reg)
	if got["orrery_enforcer_reconcile_seconds"] == 0 {
		t.Error("no reconciliation was measured")
	}
	delete(got, "orrery_enforcer_reconcile_seconds")
	if d := cmp.Diff(map[string]float64{
		"orrery_enforcer_actions_total create":         3,
		"orrery_enforcer_actions_total order":          1,
		"orrery_enforcer_actions_total set_crash_loop": 1,
		"orrery_enforcer_takeovers_total free":         fleet.ShardCount,
	}, got); d != "" {
		t.Error(d)
	}
}

func TestMetricsByGroupAreBoundedAndKeepWhatNeedsAttention(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	reg := prometheus.NewRegistry()
	v := view.New(w.client, nil, Kinds()...)
	c, err := New(Config{Store: w.client, View: v, Log: slog.New(slog.DiscardHandler), Metrics: reg, Replica: "a", Limits: plan.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	w.background(v.Run)
	w.background(c.Run)
	for n := range maxGroupMetrics {
		w.group(fleet.GroupName(fmt.Sprintf("idle-%03d", n)), minimum(0))
	}
	w.group("zz-lacking", minimum(3))
	w.group("zz-by-hand", func(g *fleet.Group) { g.Spec.Scaling.Min, g.Spec.Scaling.Mode = 3, fleet.ScalingManual })
	w.untilLiving("zz-lacking", 3)
	await.That(t, "metrics of the fullest bound", func() string {
		got := figures(t, reg)
		ok := got["orrery_enforcer_unlisted_groups"] == 2 && got["orrery_enforcer_group_missing zz-lacking"] == 3 && got["orrery_enforcer_instances zz-lacking PENDING"] == 3
		return await.Unless(ok, "%v", got)
	})
}
