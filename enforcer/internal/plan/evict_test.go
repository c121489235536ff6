package plan

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
)

func TestEvictions(t *testing.T) {
	preempted, rebalanced := evicted(fleet.ReasonPreempted), evicted(fleet.ReasonRebalanced)
	// pair returns an instance that is being moved and its replacement.
	pair := func(s *sim, edit func(*fleet.Instance)) (first, second *fleet.Instance) {
		s.group.Spec.Rebalance, s.group.Spec.Scaling.Min, s.group.Spec.Scaling.Max = true, 1, 1
		first = s.add(online)
		second = s.add(createdAt(at(-time.Minute)), edit)
		first.Intent.ReplacedBy, second.Intent.Replaces = second.Intent.ID, first.Intent.ID
		second.Intent.Lineage = first.Intent.Place()
		rebalanced(s, first)
		return first, second
	}
	starting := in(alive, fleet.Starting, fleet.ReasonProcessStarted, at(0))
	tests := []struct {
		rule  string
		setup func(*sim)
		wake  time.Duration
		want  []string
	}{
		{"what is to make room is stopped, and waits for room itself", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			preempted(s, s.add(online))
		}, 0, []string{"stop i00001 by stop: Preempted", "create minimum: BelowMinimum"}},
		{"started by hand it is healed once it is stopped", func(s *sim) {
			i := s.add(manual, online, wantsStop(false), ordered(fleet.OrderStop, at(0)))
			i.Intent.Stop.Reason = fleet.ReasonPreempted
			preempted(s, i)
		}, 0, []string{"create manual for i00001: Replacement"}},
		{"not with players", func(s *sim) {
			i := s.add(manual, online)
			s.players[i.Intent.ID] = 1
			preempted(s, i)
		}, 0, []string{"settle i00001: Preempted"}},
		{"not of a static group", func(s *sim) {
			s.group.Spec.Static.Enabled = true
			preempted(s, s.add(manual, online))
		}, 0, []string{"settle i00001: Preempted"}},
		{"not another generation", func(s *sim) {
			i := s.add(manual, online)
			preempted(s, i)
			s.evictions[i.Intent.ID].Generation = 7
		}, 0, []string{"settle i00001: Preempted"}},
		{"not for one that may not displace it any more", func(s *sim) {
			s.group.Spec.Priority = highest
			preempted(s, s.add(manual, online))
		}, 0, []string{"settle i00001: Preempted"}},
		{"not for one that has found a place", func(s *sim) {
			preempted(s, s.add(manual, online))
			s.waiting["x"] = false
		}, 0, []string{"settle i00001: Preempted"}},
		{"what is made room for keeps it until it has a place", func(s *sim) {
			i := s.add(manual, in(alive, fleet.Stopped, fleet.ReasonPreempted, at(0)), wantsStop(false))
			i.Intent.Stop.Reason, i.Intent.ReplacedBy = fleet.ReasonPreempted, "other"
			preempted(s, i)
		}, time.Minute, nil},
		{"for a minute", func(s *sim) {
			i := s.add(manual, in(alive, fleet.Stopped, fleet.ReasonPreempted, at(0)), wantsStop(false))
			i.Intent.Stop.Reason, i.Intent.ReplacedBy = fleet.ReasonPreempted, "other"
			preempted(s, i)
			s.evictions[i.Intent.ID].At = at(-time.Minute)
			i.Status.FinishedAt = at(-time.Minute)
		}, keep - time.Minute, []string{"settle i00001: Preempted"}},
		{"which begins when what made room is gone, however long its stop took", func(s *sim) {
			i := s.add(manual, in(alive, fleet.Stopped, fleet.ReasonPreempted, at(-time.Second)), wantsStop(false))
			i.Intent.Stop.Reason, i.Intent.ReplacedBy = fleet.ReasonPreempted, "other"
			preempted(s, i)
			s.evictions[i.Intent.ID].At = at(-3 * time.Minute)
		}, 59 * time.Second, nil},
		{"an end that a node's clock sets ahead prolongs nothing", func(s *sim) {
			i := s.add(manual, in(alive, fleet.Stopped, fleet.ReasonPreempted, at(time.Hour)), wantsStop(false))
			i.Intent.Stop.Reason, i.Intent.ReplacedBy = fleet.ReasonPreempted, "other"
			preempted(s, i)
			s.evictions[i.Intent.ID].At = at(-time.Minute)
		}, keep + time.Hour, []string{"settle i00001: Preempted"}},
		{"for what is moved another is started first", func(s *sim) {
			s.group.Spec.Rebalance, s.group.Spec.Scaling.Min, s.group.Spec.Scaling.Max = true, 1, 1
			rebalanced(s, s.add(online))
		}, 0, []string{"create minimum for i00001: Rebalanced"}},
		{"started by hand it is moved as such", func(s *sim) {
			s.group.Spec.Rebalance = true
			rebalanced(s, s.add(manual, online))
		}, 0, []string{"create manual for i00001: Rebalanced"}},
		{"only where the group allows it", func(s *sim) {
			rebalanced(s, s.add(manual, online))
		}, 0, []string{"settle i00001: Rebalanced"}},
		{"and not while it pauses after crashes", func(s *sim) {
			s.group.Spec.Rebalance = true
			s.loop = &crashloop.Loop{Group: "g", GroupRevision: 1, Level: 1, PausedUntil: at(time.Minute)}
			rebalanced(s, s.add(manual, online))
		}, 11 * time.Minute, []string{"settle i00001: Rebalanced"}},
		{"while the other is not ready both stay, above the maximum too", func(s *sim) {
			pair(s, starting)
		}, 135 * time.Second, nil},
		{"once it is, the first is stopped", func(s *sim) {
			pair(s, online)
		}, 0, []string{"stop i00001 by stop: Rebalanced"}},
		{"after that the move is over", func(s *sim) {
			first, _ := pair(s, online)
			wantsStop(false)(first)
			first.Intent.Stop.Reason = fleet.ReasonRebalanced
			ordered(fleet.OrderStop, at(0))(first)
		}, 70 * time.Second, []string{"settle i00001: Rebalanced"}},
		{"who has players again stays", func(s *sim) {
			first, _ := pair(s, online)
			s.players[first.Intent.ID] = 1
		}, 0, []string{"stop i00002 by stop: Rebalanced"}},
		{"when both have players both stay", func(s *sim) {
			first, second := pair(s, online)
			s.players[first.Intent.ID], s.players[second.Intent.ID] = 1, 1
		}, 0, nil},
		{"a replacement that crashes is not healed, and the first stays", func(s *sim) {
			pair(s, crashed(at(0)))
		}, keep, []string{"settle i00001 stays: Rebalanced"}},
		{"nor is it when they were started by hand", func(s *sim) {
			first, second := pair(s, crashed(at(0)))
			manual(first)
			manual(second)
		}, 0, []string{"settle i00001 stays: Rebalanced"}},
		{"one that is not ready in time is stopped", func(s *sim) {
			_, second := pair(s, func(*fleet.Instance) {})
			second.Intent.CreatedAt = at(-5 * time.Minute)
		}, 0, []string{"stop i00002: Rebalanced"}},
		{"of one that crashes while it is moved the replacement takes the place", func(s *sim) {
			first, _ := pair(s, starting)
			crashed(at(0))(first)
		}, 135 * time.Second, []string{"settle i00001: Rebalanced"}},
		{"who stops one that is being moved stops its replacement", func(s *sim) {
			first, _ := pair(s, online)
			wantsStop(false)(first)
			ordered(fleet.OrderStop, at(0))(first)
		}, 70 * time.Second, []string{"stop i00002 by stop: StopRequested", "create minimum: BelowMinimum", "settle i00001: Rebalanced"}},
		{"and the replacement of that one, if it was to be moved on", func(s *sim) {
			first, second := pair(s, online)
			wantsStop(false)(first)
			ordered(fleet.OrderStop, at(0))(first)
			rebalanced(s, second)
			third := s.add(online)
			third.Intent.Replaces, second.Intent.ReplacedBy = second.Intent.ID, third.Intent.ID
			third.Intent.Lineage = second.Intent.Place()
		}, 70 * time.Second, []string{"stop i00002 by stop: StopRequested", "stop i00003 by stop: StopRequested", "create minimum: BelowMinimum", "settle i00001: Rebalanced"}},
		{"who took the place of a lost one keeps it", func(s *sim) {
			first, _ := pair(s, starting)
			in(alive, fleet.Offline, fleet.ReasonNodeLost, at(0))(first)
			s.players[first.Intent.ID] = 1
		}, 135 * time.Second, []string{"settle i00001: Rebalanced"}},
		{"of two in one place only one is moved at a time", func(s *sim) {
			_, second := pair(s, starting)
			rebalanced(s, second)
		}, 135 * time.Second, []string{"settle i00002: Rebalanced"}},
		{"who is to make room leaves its place to the double", func(s *sim) {
			first, _ := pair(s, starting)
			preempted(s, first)
		}, 135 * time.Second, []string{"stop i00001 by stop: Preempted"}},
		{"without its group's record nothing is stopped", func(s *sim) {
			rebalanced(s, s.add(manual, online))
			preempted(s, s.add(manual, online))
			s.group = nil
		}, 0, []string{"settle i00001: Rebalanced", "settle i00002: Preempted"}},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			s := newSim()
			tt.setup(s)
			s.expect(t, at(0), tt.wake, tt.want...)
		})
	}
}

func TestAMoveNeverDropsTheNumber(t *testing.T) {
	s := newSim()
	s.group.Spec.Rebalance, s.group.Spec.Scaling.Min, s.group.Spec.Scaling.Max = true, 3, 3
	for range 3 {
		evicted(fleet.ReasonRebalanced)(s, s.add(online))
	}
	serving := func() (n int) {
		for _, i := range s.instances {
			if i.State() == fleet.Online && i.Intent.Desired == fleet.DesiredRunning {
				n++
			}
		}
		return n
	}
	for range 12 {
		s.step(at(0))
		if serving() < 3 {
			t.Fatalf("%d serve", serving())
		}
		s.live(at(0))
	}
	if len(s.evictions) > 0 || serving() != 3 || s.made != 6 {
		t.Errorf("%d serve after %d were made, %d evictions are left", serving(), s.made, len(s.evictions))
	}
}
