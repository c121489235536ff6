package controller

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/facts"
)

func TestAMoveCountsFromWhenItWasSeen(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, skew := range []time.Duration{-12 * time.Hour, 0, 12 * time.Hour} {
		s := newState(0)
		i := &fleet.Instance{Intent: fleet.Intent{ID: "aaaaaa", Group: "lobby", Generation: 1, GenerationAt: now.Add(skew), Reason: fleet.ReasonRebalanced}}
		s.noteMove(i, now, false)
		if at := s.arrived["aaaaaa"]; !at.Equal(now) {
			t.Errorf("clock %v off: it came %v ago", skew, now.Sub(at))
		}
		s.noteMove(i, now.Add(time.Minute), true) // as after a rebuild
		if at := s.arrived["aaaaaa"]; !at.Equal(now) {
			t.Errorf("clock %v off: after a rebuild it came %v ago", skew, now.Sub(at))
		}
		s.forgetMove(&view.Change{Kind: view.KindIntent, Key: []string{"aaaaaa"}})
		if len(s.arrived) != 0 {
			t.Errorf("still known: %v", s.arrived)
		}
	}
}

func TestAStopCountsFromWhenItWasSeen(t *testing.T) {
	t.Parallel()
	c := storetest.New(t)
	stored := fleet.StoredPlan{Plan: fleet.Plan{Stop: fleet.Stop{GraceSeconds: 5}}}
	if _, err := c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Create(keys.Plan("plan"), stored)}}); err != nil {
		t.Fatal(err)
	}
	v := view.New(c, nil, Kinds()...)
	ctx, cancel := context.WithCancel(t.Context())
	var viewing sync.WaitGroup
	viewing.Go(func() { _ = v.Run(ctx) })
	defer viewing.Wait()
	defer cancel()
	if err := v.Synced(ctx); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, skew := range []time.Duration{-12 * time.Hour, 0, 12 * time.Hour} {
		s := newState(0)
		s.snap = v.Snapshot()
		i := &fleet.Instance{
			Intent:    fleet.Intent{ID: "aaaaaa", Desired: fleet.DesiredStopped, Stop: &fleet.StopRequest{At: now.Add(skew)}},
			Placement: &fleet.Placement{Instance: "aaaaaa", Node: "n1", Generation: 1, Plan: "plan"},
		}
		s.noteStop("aaaaaa", i, now, false)
		s.noteStop("aaaaaa", i, now.Add(time.Second), true) // as after a rebuild
		const bound = (5 + fleet.KillAfterSeconds) * time.Second
		if !s.leavesSoon(i, now.Add(bound)) || s.leavesSoon(i, now.Add(bound+time.Second)) {
			t.Errorf("clock %v off: it is not expected to leave for as long as it may take", skew)
		}
		i.Intent.Desired = fleet.DesiredRunning
		s.noteStop("aaaaaa", i, now, false)
		if len(s.stops) != 0 {
			t.Errorf("still known: %v", s.stops)
		}
	}
}

func TestAFailureCountsFromWhenItWasSeen(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, skew := range []time.Duration{-12 * time.Hour, 0, 12 * time.Hour} {
		i := &fleet.Instance{
			Intent: fleet.Intent{ID: "aaaaaa", Group: "lobby", GroupRevision: 1, Generation: 1, Desired: fleet.DesiredRunning},
			Status: &fleet.Status{Instance: "aaaaaa", Node: "n1", Generation: 1, State: fleet.Crashed, Reason: fleet.ReasonExited, ChangedAt: now.Add(skew), FinishedAt: now.Add(skew)},
		}
		if all := facts.Failures(nil, i, now, false); len(all) != 1 || !all[0].Equal(now) {
			t.Errorf("clock %v off: it failed at %v, want now", skew, all)
		}
		if all := facts.Failures(nil, i, now, true); len(all) != 1 || all[0].After(now) {
			t.Errorf("clock %v off: of one that was there before it failed at %v", skew, all)
		}
	}
}
