package plan

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestRetirement(t *testing.T) {
	grace, deadline := 5*time.Second, 10*time.Minute
	tests := []struct {
		rule  string
		setup func(*sim)
		wake  time.Duration
		want  []string
	}{
		{"another one is started first, above the maximum too", func(s *sim) {
			s.group.Spec.Scaling.Min, s.group.Spec.Scaling.Max = 1, 1
			s.add(online, retires(at(-time.Minute)))
		}, deadline - time.Minute, []string{"create minimum: BelowMinimum"}},
		{"it stays until the other one is ready", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(online, retires(at(-time.Minute)))
			s.add(in(alive, fleet.Starting, fleet.ReasonProcessStarted, at(0)))
		}, 135 * time.Second, nil},
		{"then it is stopped", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(online, retires(at(-time.Minute)))
			s.add(online)
		}, deadline - time.Minute, []string{"stop i00001 by stop: Rebalanced"}},
		{"but not within the grace, because players may be on the way", func(s *sim) {
			s.add(online, retires(at(0)))
		}, grace, nil},
		{"nor with players", func(s *sim) {
			s.players[s.add(online, retires(at(-time.Minute))).Intent.ID] = 3
		}, deadline - time.Minute, nil},
		{"unless its deadline has passed", func(s *sim) {
			s.players[s.add(online, retires(at(-deadline))).Intent.ID] = 3
		}, 0, []string{"stop i00001 by stop: Rebalanced"}},
		{"one that is not ready has no players and is stopped at once", func(s *sim) {
			s.add(in(alive, fleet.Starting, fleet.ReasonProcessStarted, at(0)), retires(at(0)))
		}, deadline, []string{"stop i00001 by stop: Rebalanced"}},
		{"in maintenance no other one can start, and it does not wait for one", func(s *sim) {
			s.group.Spec.Scaling.Min, s.group.Spec.Maintenance.On = 1, true
			s.add(online, retires(at(-time.Minute)))
		}, deadline - time.Minute, []string{"stop i00001 by stop: Rebalanced"}},
		{"a frozen one is left alone", func(s *sim) {
			s.add(online, retires(at(-deadline))).Intent.Frozen = true
		}, 0, nil},
		{"a crash ends it without another replacement", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(crashed(at(-time.Minute)), retires(at(-time.Minute)))
			s.add(online)
		}, keep - time.Minute, nil},
		{"started by hand it is not healed after a crash", func(s *sim) {
			s.add(manual, crashed(at(-time.Minute)), retires(at(-time.Minute)))
		}, keep - time.Minute, nil},
		{"on a lost node it waits for the node", func(s *sim) {
			s.add(in(lost, fleet.Offline, fleet.ReasonNodeLost, at(-time.Minute)), retires(at(-time.Minute)))
		}, deadline - time.Minute, nil},
		{"the replacement of one started by hand must be ready", func(s *sim) {
			first := s.add(manual, online, retires(at(-time.Minute)))
			second := s.add(manual, in(alive, fleet.Starting, fleet.ReasonProcessStarted, at(0)))
			first.Intent.ReplacedBy, second.Intent.Replaces = second.Intent.ID, first.Intent.ID
		}, 135 * time.Second, nil},
		{"an instance of a static group keeps its place and starts again", func(s *sim) {
			s.group.Spec.Static.Enabled, s.group.Spec.Scaling.Min = true, 1
			s.add(online, retires(at(-time.Minute))).Intent.Retire.Restart = true
		}, deadline - time.Minute, []string{"stop i00001 by stop again: Rebalanced"}},
	}
	for _, test := range tests {
		t.Run(test.rule, func(t *testing.T) {
			s := newSim()
			s.group.Spec.Scaling.Min = 0
			test.setup(s)
			s.expect(t, at(0), test.wake, test.want...)
		})
	}
}

func TestARetiringInstanceWithPlayersStaysUntilItsDeadline(t *testing.T) {
	property(t, func(t *rapid.T, s *sim) {
		s.group.Deleting = false
		s.group.Spec.OnNodeLoss, s.group.Spec.Scaling.Max = fleet.NodeLossWait, 0
		clear(s.drains) // a drain has a deadline of its own
		actions, _ := Group(s.input(), at(0))
		for _, a := range actions {
			i := a.Instance
			if a.Kind != Stop || !i.Retiring() || i.State() != fleet.Online || s.players[i.Intent.ID] == 0 {
				continue
			}
			if at(0).Before(i.Intent.Retire.At.Add(time.Duration(i.Intent.Retire.DeadlineSeconds) * time.Second)) {
				t.Fatalf("stopped with players before its deadline:\n%s", short(actions))
			}
		}
	})
}
