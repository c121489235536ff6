package controller

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// A loss begins when this process sees it. The time since an earlier loss whose end it
// missed does not count.
func TestAnEarlierLossDoesNotCountForALaterOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.lose()
	gone := w.view.Snapshot()
	start := time.Now()
	later := *gone
	later.Rev += 10
	went := view.Change{Kind: view.KindSession, Key: []string{"node", string(node)}, Rev: gone.Rev, Before: &fleet.NodeSession{}}

	tests := []struct {
		rule  string
		batch *view.Batch // seen ten minutes after the first loss
		at    *view.Snapshot
		want  time.Duration
	}{
		{"a loss that lasts began when it was heard of", nil, gone, 0},
		{"other news change nothing", &view.Batch{After: &later}, &later, 0},
		{"after a relist nobody knows what was missed", &view.Batch{After: &later, Relisted: true}, &later, 10 * time.Minute},
		{"a return and a loss in one batch are a new loss", &view.Batch{After: &later, Changes: []view.Change{
			{Kind: view.KindSession, Key: went.Key, Rev: gone.Rev + 5, After: &fleet.NodeSession{}}, went,
		}}, &later, 10 * time.Minute},
		{"a snapshot whose news has not been heard yet is not trusted", nil, &later, 10 * time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			o := newOutages(newStamps())
			o.heard(&view.Batch{After: gone, Changes: []view.Change{went}}, start)
			now := start.Add(10 * time.Minute)
			if tt.batch != nil {
				o.heard(tt.batch, now)
			}
			if got := o.of(tt.at, node, now).Sub(start); got != tt.want {
				t.Errorf("the loss began %v after the first, want %v", got, tt.want)
			}
		})
	}
}

func TestWhatCountsAsLostNow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.group("lobby", minimum(0))
	w.lose()
	st := newStamps()
	o := newOutages(st) // as after a restart: it has seen no loss
	tests := []struct {
		rule string
		do   func()
		now  time.Duration
		want plan.Outage
	}{
		{"a node that holds nothing is not missed", func() {}, 0, plan.Outage{}},
		{"one that holds something is", func() { w.place(w.create("lobby")) }, 0, plan.Outage{Nodes: 1, Lost: 1}},
		{"but not when all it held was said to be lost long ago", func() {
			for i := range w.view.Snapshot().NodeInstances(node) {
				w.report(i.Intent.ID, fleet.Offline, fleet.ReasonNodeLost)
			}
		}, outageFor + time.Minute, plan.Outage{}},
	}
	for _, tt := range tests {
		tt.do()
		s := w.view.Snapshot()
		st.heard(&view.Batch{After: s}, time.Now())
		o.heard(&view.Batch{After: s}, time.Now())
		clear(o.since)
		if got := o.count(s, time.Now().Add(tt.now), plan.DefaultLimits()); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.rule, got, tt.want)
		}
	}
	w.join()
	s := w.view.Snapshot()
	o.heard(&view.Batch{After: s}, time.Now())
	if got, want := o.count(s, time.Now(), plan.DefaultLimits()), (plan.Outage{Nodes: 1}); got != want {
		t.Errorf("a node that is back: %+v, want %+v", got, want)
	}
}

func TestAMassOutageIsRememberedWhenItIsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.group("lobby", minimum(0))
	w.place(w.create("lobby"))
	w.lose()
	limits := plan.DefaultLimits()
	limits.MassLossNodes = 1
	o, now := newOutages(newStamps()), time.Now()
	s := w.view.Snapshot()
	o.heard(&view.Batch{After: s}, now)
	if got, want := o.count(s, now, limits), (plan.Outage{Nodes: 1, Lost: 1, MassUntil: now}); got != want {
		t.Errorf("while it lasts: %+v, want %+v", got, want)
	}
	limits.MassLossNodes = 2
	if got, want := o.count(s, now.Add(time.Minute), limits), (plan.Outage{Nodes: 1, Lost: 1, MassUntil: now}); got != want {
		t.Errorf("a minute later: %+v, want %+v", got, want)
	}
}

func TestARemovedNodeIsForgotten(t *testing.T) {
	t.Parallel()
	for _, kind := range []view.Kind{view.KindNode, view.KindNodeDesired} {
		w := newWorld(t)
		w.lose()
		s := w.view.Snapshot()
		o := newOutages(newStamps())
		o.heard(&view.Batch{After: s}, time.Now())
		o.of(s, node, time.Now())
		o.heard(&view.Batch{After: s, Changes: []view.Change{{Kind: kind, Key: []string{string(node)}, Before: &fleet.Node{}}}}, time.Now())
		if len(o.since) > 0 {
			t.Errorf("after the removal of its %s record it is still known: %v", kind, o.since)
		}
	}
}
