package events_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
)

// reportOf returns a batch with a report of node n1, or its deletion if every is negative.
func reportOf(at time.Time, every int) view.Batch {
	c := view.Change{Kind: view.KindReport, Rev: 7, Key: []string{"n1"}}
	if every >= 0 {
		c.After = &reports.Report{Node: "n1", At: at, EverySeconds: every}
	}
	return view.Batch{Changes: []view.Change{c}}
}

// beating returns heartbeats that run until the test ends, and a function for their events with their
// times.
func beating(t *testing.T) (h *events.Heartbeats, said func() []string) {
	began := time.Now()
	var told []string
	h = events.NewHeartbeats(func(e events.Event) {
		if !e.Live() || e.Fields["nodeId"] != fleet.NodeID("n1") || e.Fields["lastHeartbeatAt"].(time.Time).IsZero() {
			t.Errorf("told %+v", e)
		}
		if e.Type == events.NodeHeartbeatStale && e.Fields["missedPongs"] != 3 {
			t.Errorf("missed %v", e.Fields["missedPongs"])
		}
		told = append(told, time.Since(began).String()+" "+string(e.Type))
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); h.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return h, func() []string {
		synctest.Wait()
		defer func() { told = nil }()
		return slices.Clone(told)
	}
}

func TestAHeartbeatIsStaleAfterThreeMissedReportsAndToldOncePerChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, said := beating(t)
		is := func(stale bool, want ...string) {
			t.Helper()
			if d := cmp.Diff(want, said()); d != "" || h.Stale("n1") != stale {
				t.Errorf("stale is %v: %s", h.Stale("n1"), d)
			}
		}
		first := time.Now()
		h.OnBatch(reportOf(first, 30))
		<-time.After(80 * time.Second)
		h.OnBatch(reportOf(first.Add(80*time.Second), 30))
		<-time.After(89 * time.Second) // 169 s
		is(false)
		h.OnBatch(reportOf(first.Add(80*time.Second), 30)) // figures of instances only
		<-time.After(10 * time.Minute)
		is(true, "2m50s NODE_HEARTBEAT_STALE")
		h.OnBatch(reportOf(first.Add(770*time.Second), 30))
		is(false, "12m49s NODE_HEARTBEAT_RESUMED")
		<-time.After(time.Hour)
		is(true, "14m19s NODE_HEARTBEAT_STALE")
		h.OnBatch(reportOf(time.Time{}, -1))
		is(false)
		h.OnBatch(reportOf(time.Now(), 0)) // an older agent
		<-time.After(24 * time.Hour)
		is(false)
		h.OnBatch(reportOf(time.Now(), 1)) // after a sleep
		<-time.After(3 * time.Second)
		if got := said(); len(got) != 1 || !h.Stale("n1") {
			t.Errorf("after a long sleep: %v", got)
		}
		h.OnBatch(reportOf(time.Now(), 0)) // the agent was downgraded
		if got := said(); len(got) != 1 || h.Stale("n1") {
			t.Errorf("after a downgrade: %v", got)
		}
	})
}

func TestAGatewayThatStartsTellsNothingOfNodesThatAreGone(t *testing.T) {
	r := newReplica(t, storetest.Start(t))
	r.commit(
		store.Create(keys.NodeSession("n1"), fleet.NodeSession{Node: "n1"}),
		store.Create(keys.Report("n1"), reports.Report{Node: "n1", At: at, EverySeconds: 30}),
		store.Create(keys.Report("n2"), reports.Report{Node: "n2", At: at, EverySeconds: 30}))
	s := r.view.Snapshot()
	listed := view.Batch{Relisted: true, After: s}
	var told []events.Event
	h := events.NewHeartbeats(func(e events.Event) { told = append(told, e) })
	h.OnBatch(listed)
	h.OnBatch(listed) // again, after a broken watch
	if len(told) != 0 || h.Stale("n1") || !h.Stale("n2") {
		t.Errorf("told %v; n1 stale: %v, n2 stale: %v", told, h.Stale("n1"), h.Stale("n2"))
	}
	h.OnBatch(view.Batch{Changes: []view.Change{{Kind: view.KindReport, Rev: 9, Key: []string{"n2"}, After: &reports.Report{Node: "n2", At: at.Add(time.Hour), EverySeconds: 30}}}})
	if len(told) != 1 || told[0].Type != events.NodeHeartbeatResumed || h.Stale("n2") {
		t.Errorf("a node that is back: %v", told)
	}
}

func TestTheClockOffsetOfANodeIsThatOfItsLastLiveReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := beating(t)
		is := func(want map[fleet.NodeID]time.Duration) {
			t.Helper()
			if d := cmp.Diff(want, h.ClockOffsets()); d != "" {
				t.Error(d)
			}
		}
		is(map[fleet.NodeID]time.Duration{})
		h.OnBatch(reportOf(time.Now().Add(time.Minute), 30))
		is(map[fleet.NodeID]time.Duration{"n1": time.Minute})
		first := time.Now().Add(-2 * time.Second)
		h.OnBatch(reportOf(first, 30))
		<-time.After(10 * time.Second)
		h.OnBatch(reportOf(first, 30)) // figures of instances only
		is(map[fleet.NodeID]time.Duration{"n1": -2 * time.Second})
		missed := reportOf(time.Now().Add(-time.Hour), 30) // written while the watch was broken
		missed.Relisted, missed.After = true, view.New(nil, nil).Snapshot()
		h.OnBatch(missed)
		is(map[fleet.NodeID]time.Duration{})
		h.OnBatch(reportOf(time.Time{}, -1))
		is(map[fleet.NodeID]time.Duration{})
	})
}
