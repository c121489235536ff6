package plan

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
)

const target fleet.NodeID = "target"

// newMove returns a static group with one instance that begins to move from alive to target.
func newMove(edits ...func(*fleet.Instance)) (*sim, fleet.InstanceID) {
	s := newSim()
	s.group.Spec.Static.Enabled, s.group.Spec.Scaling.Min = true, 1
	s.sessions[target] = &fleet.NodeSession{Node: target, StartedAt: at(-24 * time.Hour)}
	id := s.add(append([]func(*fleet.Instance){online}, edits...)...).Intent.ID
	s.begin(id, 0)
	return s, id
}

func (s *sim) begin(id fleet.InstanceID, deadline int) {
	s.moves[id] = &move.Move{
		ID: "m", Instance: id, Name: "g-1", Group: "g", Source: alive, SourceUUID: "a", Target: target, TargetUUID: "t", Generation: 1,
		DeadlineSeconds: deadline, By: "alice", At: at(0), Step: move.Stopping, StepAt: at(0),
	}
}

// instance returns the current records of an instance.
func (s *sim) instance(id fleet.InstanceID) *fleet.Instance {
	for _, i := range s.instances {
		if i.Intent.ID == id {
			return i
		}
	}
	return nil
}

// settle plans until nothing is left to do.
func (s *sim) settle(t rapid.TB, now time.Time) {
	for range 20 {
		actions, _ := Group(s.input(), now)
		if len(actions) == 0 {
			return
		}
		s.apply(actions, now)
	}
	t.Fatalf("the plan does not settle: %+v", s.moves)
}

// ends reports the end of an instance that was ordered to stop.
func (s *sim) ends(id fleet.InstanceID, now time.Time) {
	if i := s.instance(id); i.HoldsNode() && standing(i) != nil {
		s.edit(i, func(i *fleet.Instance) {
			i.Status = &fleet.Status{Instance: id, Node: i.Node(), Generation: i.Placement.Generation, State: fleet.Stopped, Reason: fleet.ReasonMoved, ChangedAt: now, FinishedAt: now}
		})
	}
}

// places places an instance where its data is, as the scheduler does.
func (s *sim) places(id fleet.InstanceID, now time.Time) {
	i := s.instance(id)
	if !i.NeedsPlacement() {
		return
	}
	node := i.DataNode()
	s.edit(i, func(i *fleet.Instance) { i.Order = nil; placedOn(node, now)(i) })
}

// reports sets the state of the placed generation.
func (s *sim) reports(id fleet.InstanceID, state fleet.State, now time.Time) {
	i := s.instance(id)
	if i.Placement == nil || i.Placement.Generation < i.Intent.Generation || !i.HoldsNode() {
		return
	}
	s.edit(i, in(i.Node(), state, fleet.ReasonReady, now))
}

func (s *sim) copied(id fleet.InstanceID, state move.CopyState, now time.Time) {
	s.copies[id] = &move.Copy{Move: "m", Instance: id, Node: target, DataUUID: "t", State: state, Reason: fleet.ReasonDiskFull, Message: "full", At: now, BytesDone: 7, FilesDone: 2}
}

func (s *sim) wantStep(t *testing.T, id fleet.InstanceID, step move.Step) {
	t.Helper()
	if got := s.moves[id].Step; got != step {
		t.Fatalf("the move is %s, want %s: %+v", got, step, s.moves[id])
	}
}

func TestAMoveStopsCopiesAndStartsOnTheTarget(t *testing.T) {
	s, id := newMove()
	s.settle(t, at(0))
	s.wantStep(t, id, move.Stopping)
	if i := s.instance(id); i.Intent.Desired != fleet.DesiredStopped || i.Intent.Stop.Reason != fleet.ReasonMoved {
		t.Fatalf("the intent is %+v", i.Intent)
	}
	s.ends(id, at(time.Second))
	s.settle(t, at(time.Second))
	s.wantStep(t, id, move.Copying)
	s.copied(id, move.Fetching, at(2*time.Second))
	s.settle(t, at(time.Hour/5)) // it must not start again meanwhile, although the group is below its minimum
	if i := s.instance(id); i.Intent.Desired == fleet.DesiredRunning || len(s.instances) != 1 {
		t.Fatalf("it starts during the copy: %+v", i.Intent)
	}
	s.copied(id, move.Verified, at(time.Hour/5))
	s.settle(t, at(time.Hour/5))
	s.wantStep(t, id, move.Starting)
	i := s.instance(id)
	if i.Intent.Desired != fleet.DesiredRunning || i.Intent.Generation != 2 || i.DataNode() != target || !i.NeedsPlacement() {
		t.Fatalf("the intent is %+v", i.Intent)
	}
	s.places(id, at(time.Hour/5))
	s.settle(t, at(time.Hour/5))
	s.wantStep(t, id, move.Starting)
	s.reports(id, fleet.Online, at(time.Hour/5))
	s.settle(t, at(time.Hour/5))
	s.wantStep(t, id, move.Done)
	if m := s.moves[id]; m.Bytes != 7 || m.Files != 2 || s.instance(id).Node() != target || s.instance(id).Moved() != nil {
		t.Errorf("the move is %+v on %s", m, s.instance(id).Node())
	}
}

func TestPlayersHaveUntilTheDeadlineOfAMove(t *testing.T) {
	s, id := newMove()
	s.begin(id, 60)
	s.players[id] = 3
	s.settle(t, at(0))
	if i := s.instance(id); !i.Retiring() || i.Intent.Retire.Reason != fleet.ReasonMoved {
		t.Fatalf("the intent is %+v", i.Intent)
	}
	s.settle(t, at(59*time.Second))
	if i := s.instance(id); i.Intent.Desired != fleet.DesiredRunning {
		t.Fatal("it was stopped too early")
	}
	s.settle(t, at(time.Minute))
	s.ends(id, at(time.Minute))
	s.settle(t, at(time.Minute))
	s.wantStep(t, id, move.Copying)
}

func TestAMoveThatEndsEarlyStartsTheInstanceWhereItWas(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(*sim, fleet.InstanceID)
		now   time.Duration
		step  move.Step
		why   fleet.Reason
	}{
		"cancelled":       {func(s *sim, id fleet.InstanceID) { s.moves[id].CancelBy = "bob" }, time.Second, move.Canceled, fleet.ReasonRequested},
		"disk full":       {func(s *sim, id fleet.InstanceID) { s.copied(id, move.Broken, at(time.Second)) }, time.Second, move.Failed, fleet.ReasonDiskFull},
		"no progress":     {func(*sim, fleet.InstanceID) {}, move.StallFor + time.Second, move.Failed, fleet.ReasonDeadlinePassed},
		"target deleted":  {func(s *sim, _ fleet.InstanceID) { s.deleted[target] = true }, time.Second, move.Failed, fleet.ReasonNodeDeleted},
		"target too full": {func(s *sim, id fleet.InstanceID) { s.copied(id, move.Verified, at(0)); s.settle(new(testing.T), at(0)) }, move.PlaceFor, move.Failed, fleet.ReasonNoNodeFits},
	} {
		t.Run(name, func(t *testing.T) {
			s, id := newMove()
			s.settle(t, at(0))
			s.ends(id, at(0))
			s.settle(t, at(0))
			s.wantStep(t, id, move.Copying)
			tt.spoil(s, id)
			s.settle(t, at(tt.now))
			s.wantStep(t, id, tt.step)
			s.places(id, at(tt.now))
			i := s.instance(id)
			if s.moves[id].Reason != tt.why || i.Node() != alive || i.Intent.Desired != fleet.DesiredRunning || i.Intent.MovesTo != nil || !i.HoldsNode() {
				t.Errorf("%+v, and %+v on %s", s.moves[id], i.Intent, i.Node())
			}
		})
	}
}

func TestACopyIsBoundedByItsLatestProgressNotByItsTime(t *testing.T) {
	s, id := newMove()
	s.settle(t, at(0))
	s.ends(id, at(0))
	s.settle(t, at(0))
	var now time.Duration
	for range 20 {
		now += move.StallFor - time.Second
		s.copied(id, move.Fetching, at(now))
		s.settle(t, at(now))
		s.wantStep(t, id, move.Copying)
	}
	s.copies[id].Message = ""
	s.settle(t, at(now+move.StallFor))
	s.wantStep(t, id, move.Failed)
	if got := s.moves[id].Detail; !strings.Contains(got, "made no progress") || !strings.Contains(got, "got nothing new") {
		t.Errorf("it says %q", got)
	}
}

// Its place is kept, so no other instance is created in the pass that stops it.
func TestAnInstanceThatHasJustEndedMovesWithoutAReplacement(t *testing.T) {
	s, id := newMove(in(alive, fleet.Stopped, fleet.ReasonSessionExpiring, at(-time.Second)))
	s.settle(t, at(0))
	s.wantStep(t, id, move.Copying)
	if len(s.instances) != 1 {
		t.Errorf("there are %d instances", len(s.instances))
	}
}

func TestAStoppedInstanceMovesAndStaysStopped(t *testing.T) {
	s, id := newMove(in(alive, fleet.Stopped, fleet.ReasonStopRequested, at(-time.Minute)), wantsStop(false))
	s.group.Spec.Scaling.Min = 0
	s.settle(t, at(0))
	s.copied(id, move.Verified, at(0))
	s.settle(t, at(0))
	s.wantStep(t, id, move.Done)
	if i := s.instance(id); i.Intent.Desired != fleet.DesiredStopped || i.DataNode() != target || i.Intent.Stop.Reason != fleet.ReasonStopRequested {
		t.Errorf("the intent is %+v", i.Intent)
	}
}

// A move ends whatever happens when, and the instance is placed only where the latest complete data
// is.
func TestAMoveAlwaysEndsWithTheDataOnOneNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, id := newMove()
		s.begin(id, rapid.IntRange(0, 30).Draw(t, "deadline"))
		s.players[id] = rapid.IntRange(0, 2).Draw(t, "players")
		now, was := at(0), s.instance(id).Placement
		step := func(what int) {
			i, m := s.instance(id), s.moves[id]
			switch what {
			case 0:
				s.ends(id, now)
			case 1:
				s.places(id, now)
			case 2:
				s.reports(id, fleet.Online, now)
			case 3:
				s.reports(id, fleet.Crashed, now)
			case 4:
				if m.Step == move.Copying {
					s.copied(id, move.Verified, now)
				}
			case 5:
				if m.Step == move.Copying && s.copies[id] == nil {
					s.copied(id, move.Fetching, now)
				}
			case 6:
				if m.Active() && !m.Placed(i) {
					next := *m
					next.CancelBy = "bob"
					s.moves[id] = &next
				}
			case 7:
				now = now.Add(time.Minute)
			}
		}
		check := func() {
			i, m := s.instance(id), s.moves[id]
			if p := i.Placement; p != was && p.Node == target && (was.Node != target) {
				if c := s.copies[id]; c == nil || c.State != move.Verified || m.Step != move.Starting && m.Step != move.Done {
					t.Fatalf("it was placed on the target without its data: %+v", m)
				}
			}
			if p := i.Placement; p != was && p.Node == alive && was.Node == target {
				t.Fatalf("it was placed on the source although the target has newer data: %+v", m)
			}
			if m.Step == move.Copying && i.HoldsNode() {
				t.Fatalf("it runs during the copy: %+v", i.Intent)
			}
			was = i.Placement
		}
		for _, what := range rapid.SliceOfN(rapid.IntRange(0, 7), 0, 60).Draw(t, "events") {
			step(what)
			check()
			s.settle(t, now)
			check()
		}
		for range 8 { // then everybody works
			now = now.Add(20 * time.Minute)
			for _, what := range []int{0, 1, 4, 2} {
				step(what)
				check()
				s.settle(t, now)
			}
		}
		if i, m := s.instance(id), s.moves[id]; m.Active() || i.State() != fleet.Online || i.Node() != alive && i.Node() != target {
			t.Fatalf("at the end the move is %+v, and the instance %s on %s: %+v", m, i.State(), i.Node(), i.Intent)
		}
	})
}
