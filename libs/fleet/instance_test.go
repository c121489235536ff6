package fleet

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestInstanceStateFromRecords(t *testing.T) {
	const gen = 2 // the desired generation
	placed := func(g int64) *Placement { return &Placement{Node: "n1", Generation: g, Port: 7} }
	status := func(g int64, s State, r Reason) *Status { return &Status{Generation: g, State: s, Reason: r} }
	note := func(g int64) *Pending {
		return &Pending{Generation: g, Reason: ReasonNoNodeFits, Message: "0 of 1 nodes can take it"}
	}
	type facts struct {
		state    State
		why      Reason
		holds    bool // resources of its node
		needs    bool // needs a placement
		terminal bool
		living   bool // where lost nodes are replaced
	}
	cases := []struct {
		rule      string
		desired   Desired
		placement *Placement
		status    *Status
		pending   *Pending
		want      facts
	}{
		{"wanted, nothing more", DesiredRunning, nil, nil, nil, facts{Unplaced, ReasonUnscheduled, false, true, false, true}},
		{"wanted, does not fit", DesiredRunning, nil, nil, note(gen), facts{Unplaced, ReasonNoNodeFits, false, true, false, true}},
		{"a note on an earlier generation says nothing", DesiredRunning, nil, nil, note(gen - 1), facts{Unplaced, ReasonUnscheduled, false, true, false, true}},
		{"placed", DesiredRunning, placed(gen), nil, nil, facts{Preparing, ReasonPlaced, true, false, false, true}},
		{"placed, seen running", DesiredRunning, placed(gen), status(gen, Online, ReasonReady), nil, facts{Online, ReasonReady, true, false, false, true}},
		{"placed, on a lost node", DesiredRunning, placed(gen), status(gen, Offline, ReasonNodeLost), nil, facts{Offline, ReasonNodeLost, true, false, false, false}},
		{"crashed", DesiredRunning, placed(gen), status(gen, Crashed, ReasonExited), nil, facts{Crashed, ReasonExited, false, false, true, false}},
		{"a new generation after the old one's end", DesiredRunning, placed(gen - 1), status(gen-1, Stopped, ReasonStopRequested), nil, facts{Unplaced, ReasonUnscheduled, false, true, false, true}},
		{"it waits", DesiredRunning, placed(gen - 1), status(gen-1, Stopped, ReasonStopRequested), note(gen), facts{Unplaced, ReasonNoNodeFits, false, true, false, true}},
		{"it is placed", DesiredRunning, placed(gen), status(gen-1, Stopped, ReasonStopRequested), nil, facts{Preparing, ReasonPlaced, true, false, false, true}},
		{"a new generation while the old one runs", DesiredRunning, placed(gen - 1), status(gen-1, Online, ReasonReady), nil, facts{Online, ReasonReady, true, false, false, true}},
		{"it is to leave a lost node", DesiredRunning, placed(gen - 1), status(gen-1, Offline, ReasonNodeLost), nil, facts{Unplaced, ReasonUnscheduled, true, true, false, true}},
		{"it has left a lost node", DesiredRunning, placed(gen), status(gen-1, Offline, ReasonNodeLost), nil, facts{Preparing, ReasonPlaced, true, false, false, true}},
		{"while nobody saw the old one yet", DesiredRunning, placed(gen - 1), nil, nil, facts{Unplaced, ReasonUnscheduled, true, false, false, true}},
		{"records newer than the intent that was read", DesiredRunning, placed(gen + 1), status(gen+1, Online, ReasonReady), nil, facts{Online, ReasonReady, true, false, false, true}},
		{"asleep", DesiredRunning, placed(gen), status(gen, Sleeping, ReasonAsleep), nil, facts{Sleeping, ReasonAsleep, true, false, false, true}},
		{"asleep, and to wake", DesiredRunning, placed(gen - 1), status(gen-1, Sleeping, ReasonAsleep), note(gen), facts{Unplaced, ReasonNoNodeFits, true, true, false, true}},
		{"woken", DesiredRunning, placed(gen), status(gen-1, Sleeping, ReasonAsleep), nil, facts{Preparing, ReasonPlaced, true, false, false, true}},
		{"stopped before it was placed", DesiredStopped, nil, nil, nil, facts{Stopped, ReasonStopRequested, false, false, true, false}},
		{"stopped while it waited", DesiredStopped, nil, nil, note(gen), facts{Stopped, ReasonStopRequested, false, false, true, false}},
		{"asked to stop, its agent has not answered", DesiredStopped, placed(gen), nil, nil, facts{Preparing, ReasonPlaced, true, false, false, false}},
		{"asked to stop, still running", DesiredStopped, placed(gen), status(gen, Online, ReasonReady), nil, facts{Online, ReasonReady, true, false, false, false}},
		{"asked to stop, stopped", DesiredStopped, placed(gen), status(gen, Stopped, ReasonStopRequested), nil, facts{Stopped, ReasonStopRequested, false, false, true, false}},
		{"asked to restart, then to stop", DesiredStopped, placed(gen), status(gen, Stopped, ReasonRestart), nil, facts{Stopped, ReasonStopRequested, false, false, true, false}},
		{"asked to stop before the new generation was placed", DesiredStopped, placed(gen - 1), status(gen-1, Crashed, ReasonExited), nil, facts{Stopped, ReasonStopRequested, false, false, true, false}},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			i := &Instance{
				Intent:    Intent{ID: "abc123", Desired: c.desired, Generation: gen},
				Placement: c.placement, Status: c.status, Pending: c.pending,
			}
			if c.desired == DesiredStopped {
				i.Intent.Stop = &StopRequest{Reason: ReasonStopRequested}
			}
			why, sentence := i.Why()
			got := facts{i.State(), why, i.HoldsNode(), i.NeedsPlacement(), i.Terminal(), i.Living(false)}
			if got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			if sentence == "" {
				t.Error("no sentence says why")
			}
			if c.placement != nil && (i.Node() != "n1" || i.Port() != 7) {
				t.Errorf("on %q:%d", i.Node(), i.Port())
			}
		})
	}
}

func TestDerivedFactsAreConsistent(t *testing.T) {
	for _, desired := range []Desired{DesiredRunning, DesiredStopped} {
		for placement := range int64(4) {
			for status := range placement + 1 { // nothing is reported before placement
				for _, state := range States {
					i := &Instance{Intent: Intent{Desired: desired, Generation: 2}}
					if placement > 0 {
						i.Placement = &Placement{Generation: placement}
					}
					if status > 0 {
						i.Status = &Status{Generation: status, State: state}
					}
					if i.NeedsPlacement() && (i.HoldsNode() && !i.Moving() && !i.Waking() || i.Terminal() || i.State() != Unplaced) {
						t.Errorf("%s, placement %d, status %d %s: needs a placement, holds its node %v, is %s", desired, placement, status, state, i.HoldsNode(), i.State())
					}
					if i.Living(true) && i.Terminal() {
						t.Errorf("%s, placement %d, status %d %s: living and terminal", desired, placement, status, state)
					}
					if i.Living(false) && !i.Living(true) {
						t.Errorf("%s, placement %d, status %d %s: living only where lost nodes are replaced", desired, placement, status, state)
					}
				}
			}
		}
	}
}

func TestLostInstanceCountsIfGroupWaits(t *testing.T) {
	i := &Instance{Intent: Intent{Desired: DesiredRunning, Generation: 1}, Status: &Status{Generation: 1, State: Offline}}
	for _, c := range []struct {
		policy OnNodeLoss
		static bool
		want   bool
	}{
		{NodeLossWait, false, true},
		{NodeLossReplace, false, false},
		{NodeLossStop, false, false},
		{"", false, false},
		{NodeLossWait, true, true},
		{NodeLossReplace, true, true},
		{NodeLossStop, true, false},
		{"", true, true},
	} {
		spec := GroupSpec{OnNodeLoss: c.policy, Static: Static{Enabled: c.static}}
		if i.Living(spec.KeepsLost()) != c.want {
			t.Errorf("%q, static %v: living is not %v", c.policy, c.static, c.want)
		}
	}
}

func TestWhyPrefersMessageToReason(t *testing.T) {
	i := &Instance{
		Intent: Intent{Desired: DesiredRunning, Generation: 1},
		Status: &Status{Generation: 1, State: Failed, Reason: ReasonDiskFull, Message: "3 MiB are free, 10 are needed"},
	}
	if _, s := i.Why(); s != i.Status.Message {
		t.Errorf("sentence %q", s)
	}
	i.Status.Message = ""
	if _, s := i.Why(); s != ReasonDiskFull.Text() {
		t.Errorf("sentence %q", s)
	}
}

func TestWhyDuringRestart(t *testing.T) {
	i := &Instance{
		Intent: Intent{Desired: DesiredStopped, Generation: 1, RestartPending: true, Stop: &StopRequest{Reason: ReasonRestart, Message: "restarted by ada"}},
		Status: &Status{Generation: 1, State: Stopping, Reason: ReasonRestart, Message: "restarted by ada"},
	}
	if reason, s := i.Why(); reason != ReasonRestart || s != "restarted by ada" {
		t.Errorf("%s: %s", reason, s)
	}
}

func TestFinishedAt(t *testing.T) {
	asked := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	cases := []struct {
		rule string
		edit func(*Instance)
		want time.Time
	}{
		{"zero while it lives", func(i *Instance) { i.Status.State = Online }, time.Time{}},
		{"when the agent saw the end", func(*Instance) {}, asked.Add(time.Minute)},
		{"when the agent said so, if it saw none", func(i *Instance) { i.Status.FinishedAt = time.Time{} }, asked.Add(time.Hour)},
		{"not before it was asked for", func(i *Instance) { i.Status.FinishedAt = asked.Add(-time.Hour) }, asked},
		{"not after the agent said so", func(i *Instance) { i.Status.FinishedAt = asked.Add(5 * time.Hour) }, asked.Add(time.Hour)},
		{"when it was asked to stop, if it was never placed", func(i *Instance) {
			i.Status, i.Intent.Desired, i.Intent.Stop = nil, DesiredStopped, &StopRequest{At: asked.Add(time.Second)}
		}, asked.Add(time.Second)},
		{"when it was asked for, if nothing else is known", func(i *Instance) { i.Status, i.Intent.Desired = nil, DesiredStopped }, asked},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			i := &Instance{
				Intent: Intent{Desired: DesiredRunning, Generation: 1, GenerationAt: asked},
				Status: &Status{Generation: 1, State: Crashed, FinishedAt: asked.Add(time.Minute), ChangedAt: asked.Add(time.Hour)},
			}
			c.edit(i)
			if got := i.FinishedAt(); !got.Equal(c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func TestStateTextAvoidsStateNames(t *testing.T) {
	said := map[string]State{}
	for _, s := range States {
		text := s.Text()
		if other, twice := said[text]; twice || text != strings.ToLower(text) {
			t.Errorf("%s is told as %q, as %q is", s, text, other)
		}
		said[text] = s
	}
	if got := Online.Text(); got != "runs" {
		t.Errorf("it %s", got)
	}
}

func TestEveryStateIsClassified(t *testing.T) {
	terminal := []State{Stopped, Crashed, Failed}
	running := []State{Starting, Online, Stopping}
	for _, s := range States {
		if s.Terminal() != slices.Contains(terminal, s) || s.Running() != slices.Contains(running, s) {
			t.Errorf("%s: terminal %v, running %v", s, s.Terminal(), s.Running())
		}
		followed := 0
		for _, next := range States {
			if !s.CanBecome(next) {
				continue
			}
			followed++
			if next == s || next == Unplaced {
				t.Errorf("%s can become %s", s, next)
			}
		}
		if none := s.Terminal() || s == Unplaced; none != (followed == 0) {
			t.Errorf("%s can become %d states", s, followed)
		}
		if followed > 0 && s != Sleeping && !(s.CanBecome(Crashed) && s.CanBecome(Failed) && s.CanBecome(Stopped)) {
			t.Errorf("%s cannot end", s)
		}
	}
}

// After a restore from a backup, etcd's records may be from different histories.
func TestGenerationsAfterARestore(t *testing.T) {
	at := func(intent, placement, status int64, node NodeID) *Instance {
		i := &Instance{Intent: Intent{Generation: intent}}
		if placement != 0 {
			i.Placement = &Placement{Node: "n1", Generation: placement}
		}
		if status != 0 {
			i.Status = &Status{Node: node, Generation: status}
		}
		return i
	}
	for _, tt := range []struct {
		name       string
		i          *Instance
		held, last int64
	}{
		{"a running one", at(2, 2, 2, "n1"), 2, 2},
		{"one that waits for its next generation", at(3, 2, 2, "n1"), 2, 3},
		{"its node reports a later run than was restored", at(1, 1, 3, "n1"), 3, 3},
		{"another node does", at(1, 1, 3, "n2"), 1, 3},
		{"its placement is later than its status", at(4, 4, 3, "n1"), 4, 4},
		{"it has no placement", at(1, 0, 3, "n1"), 0, 3},
	} {
		if held, last := tt.i.HeldGeneration(), tt.i.LastGeneration(); held != tt.held || last != tt.last {
			t.Errorf("%s: generation %d is held and %d the last, want %d and %d", tt.name, held, last, tt.held, tt.last)
		}
	}
}

func TestHeldAfterARestore(t *testing.T) {
	at := func(p *Placement, s *Status) *Instance { return &Instance{Placement: p, Status: s} }
	placed := func(g int64) *Placement { return &Placement{Node: "n1", Generation: g} }
	reported := func(n NodeID, g int64, state State) *Status { return &Status{Node: n, Generation: g, State: state} }
	for _, tt := range []struct {
		name       string
		i          *Instance
		stray      bool
		node       NodeID
		generation int64
	}{
		{"nothing is known", at(nil, nil), false, "", 0},
		{"it is placed", at(placed(2), nil), false, "n1", 2},
		{"it runs where it is placed", at(placed(2), reported("n1", 2, Online)), false, "n1", 2},
		{"a later generation runs where it is placed", at(placed(2), reported("n1", 3, Online)), false, "n1", 3},
		{"it moves", at(placed(2), reported("n0", 1, Offline)), false, "n1", 2},
		{"it runs without a placement", at(nil, reported("n2", 1, Starting)), true, "n2", 1},
		{"it ended without a placement", at(nil, reported("n2", 1, Stopped)), false, "", 0},
		{"a later generation runs elsewhere", at(placed(2), reported("n2", 3, Online)), true, "n2", 3},
		{"a later generation ended elsewhere", at(placed(2), reported("n2", 3, Crashed)), false, "n1", 2},
	} {
		node, generation := tt.i.Held()
		if tt.i.Stray() != tt.stray || node != tt.node || generation != tt.generation {
			t.Errorf("%s: stray %v, generation %d on %q", tt.name, tt.i.Stray(), generation, node)
		}
	}
}

func TestACopyCountsUntilAGenerationWasPlacedThere(t *testing.T) {
	i := &Instance{
		Intent:    Intent{Generation: 3, MovesTo: &DataCopy{Node: "n2", DataUUID: "d2", Generation: 3}},
		Placement: &Placement{Node: "n1", Generation: 2},
	}
	if i.Moved() == nil || i.DataNode() != "n2" {
		t.Errorf("before its placement the data is on %s", i.DataNode())
	}
	i.Intent.Generation, i.Placement = 4, &Placement{Node: "n2", Generation: 4}
	if i.Moved() != nil || i.DataNode() != "n2" {
		t.Errorf("after its placement it still moves: %+v", i.Moved())
	}
	i.Placement = &Placement{Node: "n1", Generation: 5} // its node was lost, and it moved on
	if i.Moved() != nil || i.DataNode() != "n1" {
		t.Errorf("the data is on %s", i.DataNode())
	}
}
