package plan

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// other is a node that is not drained.
const other fleet.NodeID = "other"

// drain drains the node alive since a time, for ten minutes.
func (s *sim) drain(since time.Duration) {
	s.drains[alive] = &fleet.NodeDrain{At: at(since), TimeoutSeconds: 600, By: "alice"}
	s.sessions[other] = &fleet.NodeSession{Rev: record.Rev{CreateRev: 10}, Node: other, StartedAt: at(-24 * time.Hour)}
}

func elsewhere(i *fleet.Instance) { in(other, fleet.Online, fleet.ReasonReady, at(-time.Hour))(i) }

// drainedDown is an instance that was stopped for a drain.
func drainedDown(i *fleet.Instance) {
	in(alive, fleet.Stopped, fleet.ReasonNodeDrained, at(-time.Minute))(i)
	i.Intent.Desired = fleet.DesiredStopped
	i.Intent.Stop = &fleet.StopRequest{At: at(-time.Minute), Reason: fleet.ReasonNodeDrained}
}

func retiresForDrain(i *fleet.Instance) {
	retires(at(-time.Minute))(i)
	i.Intent.Retire.Reason = fleet.ReasonNodeDrained
}

func TestDrain(t *testing.T) {
	const half, over = 5 * time.Minute, 10 * time.Minute
	static := func(s *sim) { s.group.Spec.Static.Enabled, s.group.Spec.Scaling.Min = true, 1 }
	tests := []struct {
		rule  string
		setup func(*sim)
		wake  time.Duration
		want  []string
	}{
		{"an instance that is needed stays until another one is ready, which starts above the maximum too", func(s *sim) {
			s.group.Spec.Scaling.Min, s.group.Spec.Scaling.Max = 1, 1
			s.add(online)
		}, half, []string{"create minimum: BelowMinimum"}},
		{"then it retires", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.players[s.add(online).Intent.ID] = 3
			s.add(elsewhere)
		}, over, []string{"retire i00001: NodeDrained"}},
		{"it waits for another one at most half of the time", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(online)
			s.add()
			s.drain(-half)
		}, half, []string{"retire i00001: NodeDrained"}},
		{"at the timeout it is stopped with its players", func(s *sim) {
			s.players[s.add(online, retiresForDrain).Intent.ID] = 3
			s.drain(-over)
		}, 0, []string{"stop i00001 by stop: NodeDrained"}},
		{"one that the group does not need retires at once, even if a user started it", func(s *sim) {
			s.add(online, manual)
		}, over, []string{"retire i00001: NodeDrained"}},
		{"one that is not ready retires at once", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(in(alive, fleet.Starting, fleet.ReasonProcessStarted, at(0)))
		}, over, []string{"retire i00001: NodeDrained", "create minimum: BelowMinimum"}},
		{"the one with the most players waits", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(online)
			s.players[s.add(online).Intent.ID] = 3
			s.add()
		}, half, []string{"retire i00001: NodeDrained"}},
		{"in maintenance nothing replaces it, and it retires at once", func(s *sim) {
			s.group.Spec.Scaling.Min, s.group.Spec.Maintenance.On = 1, true
			s.add(online)
		}, over, []string{"retire i00001: NodeDrained"}},
		{"a group with manual scaling starts no other", func(s *sim) {
			s.group.Spec.Scaling.Min, s.group.Spec.Scaling.Mode = 1, fleet.ScalingManual
			s.add(online)
		}, over, []string{"retire i00001: NodeDrained"}},
		{"a frozen one is left alone, also after the timeout", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(online).Intent.Frozen = true
			s.drain(-over)
		}, 0, nil},
		{"a lost one is left to the rules for lost nodes", func(s *sim) {
			s.group.Spec.OnNodeLoss, s.group.Spec.Scaling.Min = fleet.NodeLossWait, 1
			s.add(in(alive, fleet.Offline, fleet.ReasonNodeLost, at(-time.Hour)))
			delete(s.sessions, alive)
			s.drain(-over)
		}, 0, nil},
		{"another node's drain is nothing to it", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(elsewhere)
		}, 0, nil},
		{"a static one retires at once, and no other one takes its place", func(s *sim) {
			static(s)
			s.add(online)
		}, over, []string{"retire i00001: NodeDrained"}},
		{"an empty static one stops and keeps its place", func(s *sim) {
			static(s)
			s.add(online, retiresForDrain)
			s.drain(-time.Minute)
		}, over - time.Minute, []string{"stop i00001 by stop: NodeDrained"}},
		{"at the timeout a static one is stopped and keeps its place", func(s *sim) {
			static(s)
			s.players[s.add(online).Intent.ID] = 3
			s.drain(-over)
		}, 0, []string{"stop i00001 by stop: NodeDrained"}},
		{"it stays down", func(s *sim) {
			static(s)
			s.add(drainedDown)
		}, 0, nil},
		{"it stays down while its data is about to move", func(s *sim) {
			static(s)
			s.add(drainedDown)
			s.drains[alive].MoveStatic = true
		}, 0, nil},
		{"one whose data moves stops at the timeout, as others do", func(s *sim) {
			static(s)
			s.players[s.add(online).Intent.ID] = 3
			s.drain(-over)
			s.drains[alive].MoveStatic = true
		}, 0, []string{"stop i00001 by stop: NodeDrained"}},
		{"it stays down when the drain is complete", func(s *sim) {
			static(s)
			s.add(drainedDown)
			s.drains[alive].CompletedAt = at(-time.Minute)
		}, 0, nil},
		{"it starts again when the drain is ended, whatever the minimum", func(s *sim) {
			static(s)
			s.group.Spec.Scaling.Min = 0
			s.add(drainedDown)
			clear(s.drains)
		}, 0, []string{"again i00001: NodeReady"}},
		{"not before the maintenance ends", func(s *sim) {
			static(s)
			s.maintenance = true
			s.add(drainedDown)
			clear(s.drains)
		}, 0, nil},
		{"a frozen one stays down", func(s *sim) {
			static(s)
			s.add(drainedDown).Intent.Frozen = true
			clear(s.drains)
		}, 0, nil},
		{"a retirement ends with the drain", func(s *sim) {
			s.add(online, retiresForDrain)
			clear(s.drains)
		}, 0, []string{"retire i00001: NodeReady"}},
		{"another drain of the node sets another deadline", func(s *sim) {
			s.players[s.add(online, retiresForDrain).Intent.ID] = 1
			s.drain(-time.Second)
		}, over - time.Second, []string{"retire i00001: NodeDrained"}},
		{"one that retires for another reason retires for the drain, so that its players leave in time", func(s *sim) {
			s.players[s.add(online, retires(at(-time.Minute))).Intent.ID] = 1
		}, over, []string{"retire i00001: NodeDrained"}},
	}
	for _, test := range tests {
		t.Run(test.rule, func(t *testing.T) {
			s := newSim()
			s.group.Spec.Scaling.Min = 0
			s.drain(0)
			test.setup(s)
			s.expect(t, at(0), test.wake, test.want...)
		})
	}
}

func TestADrainGivesItsDeadlineToTheRetirement(t *testing.T) {
	s := newSim()
	s.group.Spec.Scaling.Min = 0
	s.drain(-time.Minute)
	s.add(online)
	actions, _ := Group(s.input(), at(0))
	if len(actions) != 1 || actions[0].Retirement.DeadlineSeconds != 540 || actions[0].Retirement.By != "alice" || actions[0].Retirement.TransferAfterSeconds != 0 {
		t.Errorf("retires with %+v", actions)
	}
}

// drained draws a group on the node alive, which is drained from now on.
func drained(t *rapid.T) *sim {
	s := anySim(t)
	s.drain(0)
	s.drains[alive].TimeoutSeconds = rapid.IntRange(1, 600).Draw(t, "timeout")
	return s
}

// round plans once and simulates the agents and the scheduler, which uses the other node.
func (s *sim) round(t *rapid.T, now time.Time) (time.Time, []Action) {
	actions, wake := s.step(now)
	waited := map[fleet.InstanceID]bool{}
	for _, i := range s.instances {
		waited[i.Intent.ID] = i.NeedsPlacement()
	}
	s.live(now)
	for _, i := range slices.Clone(s.instances) {
		if waited[i.Intent.ID] && i.Node() == alive {
			s.edit(i, in(other, fleet.Online, fleet.ReasonReady, now))
		}
		if s.players[i.Intent.ID] > 0 && i.Retiring() && rapid.Bool().Draw(t, "leaves") {
			s.players[i.Intent.ID] = 0
		}
	}
	return wake, actions
}

func TestADrainEndsAndStopsNoPlayersBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drained(t)
		s.group.Deleting = false
		for _, i := range s.instances {
			i.Intent.Frozen = false
		}
		over, now, idle := at(0).Add(s.drains[alive].Timeout()), at(0), 0
		for range 100 {
			before := map[fleet.InstanceID]int{}
			for _, i := range s.instances {
				before[i.Intent.ID] = s.players[i.Intent.ID]
			}
			wake, actions := s.round(t, now)
			for _, a := range actions {
				if a.Kind == Stop && a.Reason == fleet.ReasonNodeDrained && before[a.Instance.Intent.ID] > 0 && a.Instance.State() == fleet.Online && now.Before(over) {
					if r := a.Instance.Intent.Retire; r == nil || now.Before(r.At.Add(time.Duration(r.DeadlineSeconds)*time.Second)) {
						t.Fatalf("players are stopped %v before the end of the drain:\n%s", over.Sub(now), short(actions))
					}
				}
			}
			if !slices.ContainsFunc(s.instances, func(i *fleet.Instance) bool {
				return i.HoldsNode() && i.Node() == alive && !i.Lost() && !i.Stranded()
			}) {
				return
			}
			if len(actions) == 0 {
				if wake.IsZero() {
					if idle++; idle > 1 { // after the first, a lost instance may have returned
						t.Fatalf("nothing more happens, but instances are left")
					}
					continue
				}
				now = wake
			}
		}
		t.Fatalf("no end %v after the start of a drain of %v", now.Sub(at(0)), s.drains[alive].Timeout())
	})
}

func TestADrainNeverStopsTheFrozenOrStartsOnTheNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drained(t)
		s.group.Deleting = false
		now := at(0)
		for range 20 {
			wake, actions := s.round(t, now)
			for _, a := range actions {
				if a.Instance != nil && a.Instance.Intent.Frozen && a.Reason == fleet.ReasonNodeDrained {
					t.Fatalf("a frozen instance is drained:\n%s", short(actions))
				}
				if a.Kind == Restart && a.Reason == fleet.ReasonNodeReady {
					t.Fatalf("an instance starts during the drain:\n%s", short(actions))
				}
			}
			if len(actions) == 0 {
				if wake.IsZero() {
					return
				}
				now = wake
			}
		}
	})
}
