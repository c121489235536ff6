package plan

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/drain"
	"github.com/orreryhq/orrery/libs/fleet/move"
)

// newDrain returns a static group with one instance on the node alive, which is drained with
// moveStatic.
func newDrain() (*sim, fleet.InstanceID) {
	s, id := newMove()
	delete(s.moves, id)
	s.drain(0)
	s.drains[alive].ID, s.drains[alive].MoveStatic = "d", true
	return s, id
}

// movesOn begins the moves that a drain needs, as the gateway does. With refused, no node takes the
// instances.
func (s *sim) movesOn(refused bool, now time.Time) {
	g := drain.Group{
		Spec: &s.group.Spec, Instances: s.instances, Players: func(i *fleet.Instance) int { return s.players[i.Intent.ID] },
		Draining: func(n fleet.NodeID) *fleet.NodeDrain { return s.drains[n] },
		Move:     func(id fleet.InstanceID) *move.Move { return s.moves[id] },
	}
	steps, _ := g.Of(now)
	for _, step := range steps {
		if step.Verb != drain.Move || step.Move != nil {
			continue
		}
		id := step.Instance.Intent.ID
		s.begin(id, 0)
		delete(s.copies, id)
		m := s.moves[id]
		m.Generation, m.At, m.StepAt, m.Drain = step.Instance.LastGeneration(), now, now, s.drains[alive].ID
		if refused {
			m.Step, m.Target, m.Reason = move.Failed, "", fleet.ReasonNoNodeFits
		}
	}
}

// placesUncordoned places an instance where its data is, unless that node is drained.
func (s *sim) placesUncordoned(id fleet.InstanceID, now time.Time) {
	if s.drains[s.instance(id).DataNode()] == nil {
		s.places(id, now)
	}
}

func TestADrainMovesAStaticInstanceOnceItHasEnded(t *testing.T) {
	s, id := newDrain()
	s.players[id] = 2
	s.settle(t, at(0))
	s.movesOn(false, at(0))
	if i := s.instance(id); !i.Retiring() || s.moves[id] != nil {
		t.Fatalf("it is %+v, and moves %+v", i.Intent, s.moves[id])
	}
	s.players[id] = 0
	s.settle(t, at(time.Minute))
	s.ends(id, at(time.Minute))
	s.settle(t, at(time.Minute))
	s.movesOn(false, at(time.Minute))
	s.settle(t, at(time.Minute))
	s.wantStep(t, id, move.Copying)
	s.copied(id, move.Verified, at(time.Hour/10))
	s.settle(t, at(time.Hour/10))
	s.wantStep(t, id, move.Starting)
	s.placesUncordoned(id, at(time.Hour/10))
	s.reports(id, fleet.Online, at(time.Hour/10))
	s.settle(t, at(time.Hour/10))
	s.wantStep(t, id, move.Done)
	if i := s.instance(id); i.Node() != target || i.State() != fleet.Online {
		t.Errorf("it is %s on %s: %+v", i.State(), i.Node(), i.Intent)
	}
}

func TestAMoveOfADrainThatFailsLeavesTheInstanceDownUntilTheDrainEnds(t *testing.T) {
	for name, spoil := range map[string]func(*sim, fleet.InstanceID){
		"no node fits": func(s *sim, id fleet.InstanceID) { delete(s.moves, id); s.movesOn(true, at(0)) },
		"disk full":    func(s *sim, id fleet.InstanceID) { s.copied(id, move.Broken, at(0)) },
		"cancelled":    func(s *sim, id fleet.InstanceID) { s.moves[id].CancelBy = "bob" },
		"target too full": func(s *sim, id fleet.InstanceID) {
			s.copied(id, move.Verified, at(0))
			s.settle(new(testing.T), at(0))
			s.settle(new(testing.T), at(move.PlaceFor))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, id := newDrain()
			s.settle(t, at(0))
			s.settle(t, at(time.Minute))
			s.ends(id, at(0))
			s.movesOn(false, at(0))
			s.settle(t, at(0))
			s.wantStep(t, id, move.Copying)
			spoil(s, id)
			s.settle(t, at(move.PlaceFor))
			s.movesOn(false, at(move.PlaceFor)) // it is not moved again
			if i, m := s.instance(id), s.moves[id]; m.Active() || !drain.Down(&s.group.Spec, i) || i.HoldsNode() || i.DataNode() != alive {
				t.Fatalf("it is %+v, and its move %+v", i.Intent, m)
			}
			clear(s.drains)
			s.settle(t, at(move.PlaceFor))
			s.placesUncordoned(id, at(move.PlaceFor))
			if i := s.instance(id); i.Node() != alive || !i.HoldsNode() {
				t.Errorf("after the drain it is %+v", i.Intent)
			}
		})
	}
}

func TestTheEndOfADrainCancelsItsMoves(t *testing.T) {
	s, id := newDrain()
	s.settle(t, at(0))
	s.settle(t, at(time.Minute))
	s.ends(id, at(time.Minute))
	s.movesOn(false, at(time.Minute))
	s.settle(t, at(time.Minute))
	s.wantStep(t, id, move.Copying)
	clear(s.drains)
	s.settle(t, at(time.Minute))
	s.wantStep(t, id, move.Canceled)
	s.placesUncordoned(id, at(time.Minute))
	if i := s.instance(id); i.Node() != alive || !i.HoldsNode() || i.Intent.Desired != fleet.DesiredRunning {
		t.Errorf("it is %+v", i.Intent)
	}
}

// Whatever happens during a drain with moveStatic, the instance starts only where its latest data is,
// no move is left, and after the drain it runs.
func TestADrainThatMovesLeavesEachInstanceOnOneNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, id := newDrain()
		s.players[id] = rapid.IntRange(0, 1).Draw(t, "players")
		now, was, drains := at(0), s.instance(id).Placement, 0
		step := func(what int) {
			m := s.moves[id]
			switch what {
			case 0:
				s.ends(id, now)
			case 1:
				s.placesUncordoned(id, now)
			case 2:
				s.reports(id, fleet.Online, now)
			case 3:
				s.reports(id, fleet.Crashed, now)
			case 4:
				if m.Active() && m.Step == move.Copying {
					s.copied(id, move.Verified, now)
				}
			case 5:
				if m.Active() && m.Step == move.Copying {
					s.copied(id, move.Broken, now)
				}
			case 6:
				if m.Active() && !m.Placed(s.instance(id)) {
					next := *m
					next.CancelBy = "bob"
					s.moves[id] = &next
				}
			case 7:
				now = now.Add(time.Minute)
			case 8:
				s.movesOn(false, now)
			case 9:
				s.movesOn(true, now)
			case 10:
				clear(s.drains)
			case 11:
				drains++
				s.drain(0)
				s.drains[alive].At, s.drains[alive].MoveStatic = now, true
				s.drains[alive].ID = string(rune('0' + drains%10))
			}
		}
		check := func() {
			i, m := s.instance(id), s.moves[id]
			if p := i.Placement; p != was && p.Node == target && was.Node != target {
				if c := s.copies[id]; c == nil || c.State != move.Verified || m.Step != move.Starting && m.Step != move.Done {
					t.Fatalf("it was placed on the target without its data: %+v", m)
				}
			}
			if p := i.Placement; p != was && p.Node == alive && was.Node == target {
				t.Fatalf("it was placed on the source although the target has newer data: %+v", m)
			}
			if m.Active() && m.Step == move.Copying && i.HoldsNode() {
				t.Fatalf("it runs during the copy: %+v", i.Intent)
			}
			was = i.Placement
		}
		for _, what := range rapid.SliceOfN(rapid.IntRange(0, 11), 0, 60).Draw(t, "events") {
			step(what)
			check()
			s.settle(t, now)
			check()
		}
		s.players[id] = 0
		work := func() {
			for range 12 { // everybody works
				now = now.Add(20 * time.Minute)
				for _, what := range []int{0, 8, 4, 1, 2} {
					step(what)
					check()
					s.settle(t, now)
				}
			}
		}
		work()
		if i, m := s.instance(id), s.moves[id]; m.Active() || s.drains[alive] != nil && i.Node() == alive && i.HoldsNode() {
			t.Fatalf("at the end of the drain the move is %+v, and the instance %s on %s: %+v", m, i.State(), i.Node(), i.Intent)
		}
		clear(s.drains)
		work()
		if i, m := s.instance(id), s.moves[id]; m.Active() || i.State() != fleet.Online {
			t.Fatalf("after the drain the move is %+v, and the instance %s on %s: %+v", m, i.State(), i.Node(), i.Intent)
		}
	})
}
