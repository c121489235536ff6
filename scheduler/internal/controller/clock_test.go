package controller

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

func TestAMoveCountsFromWhenItWasSeen(t *testing.T) {
	now := time.Now()
	for _, skew := range []time.Duration{-12 * time.Hour, 0, 12 * time.Hour} {
		s := newState()
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

func TestAFailureCountsFromWhenItWasSeen(t *testing.T) {
	now := time.Now()
	for _, skew := range []time.Duration{-12 * time.Hour, 0, 12 * time.Hour} {
		i := &fleet.Instance{
			Intent: fleet.Intent{ID: "aaaaaa", Group: "lobby", GroupRevision: 1, Generation: 1, Desired: fleet.DesiredRunning},
			Status: &fleet.Status{Instance: "aaaaaa", Node: "n1", Generation: 1, State: fleet.Crashed, Reason: fleet.ReasonExited, ChangedAt: now.Add(skew), FinishedAt: now.Add(skew)},
		}
		if all := failures(nil, i, now, false); len(all) != 1 || !all[0].Equal(now) {
			t.Errorf("clock %v off: it failed at %v, want now", skew, all)
		}
		if all := failures(nil, i, now, true); len(all) != 1 || all[0].After(now) {
			t.Errorf("clock %v off: of one that was there before it failed at %v", skew, all)
		}
	}
}
