package rebalance

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
)

func at(d time.Duration) time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC).Add(d) }

// sim is a fleet whose moves succeed at once.
type sim struct {
	nodes     map[fleet.NodeID]*Node
	instances map[fleet.InstanceID]*Instance
	stuck     map[fleet.InstanceID]bool // has players, is static, or its group does not allow it
	barred    map[fleet.InstanceID]fleet.NodeID
	limits    Limits
	moved     map[fleet.InstanceID]time.Time
}

func newSim() *sim {
	return &sim{
		nodes: map[fleet.NodeID]*Node{}, instances: map[fleet.InstanceID]*Instance{},
		stuck: map[fleet.InstanceID]bool{}, barred: map[fleet.InstanceID]fleet.NodeID{},
		limits: DefaultLimits(), moved: map[fleet.InstanceID]time.Time{},
	}
}

func (s *sim) node(id fleet.NodeID, memory, cpu int) {
	s.nodes[id] = &Node{ID: id, Usable: true, Capacity: fleet.Resources{MemoryMiB: memory, CPU: cpu}}
}

func (s *sim) add(n fleet.NodeID, r fleet.Resources) fleet.InstanceID {
	id := fleet.InstanceID(fmt.Sprintf("i%05d", len(s.instances)))
	s.instances[id] = &Instance{ID: id, Node: n, Resources: r}
	s.nodes[n].Used = s.nodes[n].Used.Add(r)
	return id
}

func (s *sim) input() Input {
	in := Input{Limits: s.limits, Fits: func(id fleet.InstanceID, to fleet.NodeID) bool {
		n := s.nodes[to]
		return s.barred[id] != to && s.instances[id].Resources.Fits(n.Capacity.Sub(n.Used))
	}}
	for _, n := range s.nodes {
		in.Nodes = append(in.Nodes, *n)
	}
	for id, i := range s.instances {
		if !s.stuck[id] {
			in.Instances = append(in.Instances, *i)
		}
	}
	return in
}

// step checks the moves and carries them out.
func (s *sim) step(t fataler, now time.Time) []Move {
	moves := Moves(s.input(), now)
	if len(moves) > s.limits.Moves {
		t.Fatalf("%d moves at once", len(moves))
	}
	for _, m := range moves {
		i := s.instances[m.Instance]
		if s.stuck[i.ID] {
			t.Fatalf("%s was moved, which may not be", i.ID)
		}
		if before, ok := s.moved[i.ID]; ok && now.Sub(before) < s.limits.Quiet {
			t.Fatalf("%s moved again after %v", i.ID, now.Sub(before))
		}
		from, to := s.nodes[m.From], s.nodes[m.To]
		was := max(from.use(), to.use())
		from.Used, to.Used = from.Used.Sub(i.Resources), to.Used.Add(i.Resources)
		if !to.Usable || from.use() >= was || to.use() >= was {
			t.Fatalf("%s from %s to %s: used %.3f and %.3f, the fuller was %.3f", i.ID, from.ID, to.ID, from.use(), to.use(), was)
		}
		i.Node, i.MovedAt, s.moved[i.ID] = to.ID, now, now
	}
	return moves
}

type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

// settle moves instances until nothing has moved for longer than the quiet time.
func (s *sim) settle(t fataler, rounds int) (moves int) {
	t.Helper()
	seen := map[string]bool{}
	now := at(0)
	for quiet := 0; quiet < 2; rounds-- {
		if rounds == 0 {
			t.Fatalf("it does not end: %d moves", moves)
		}
		done := s.step(t, now)
		moves += len(done)
		now = now.Add(time.Minute)
		if len(done) > 0 {
			quiet = 0
			state := s.state()
			if seen[state] {
				t.Fatalf("it was like that before:\n%s", state)
			}
			seen[state] = true
			continue
		}
		quiet++
		now = now.Add(s.limits.Quiet)
	}
	return moves
}

func (s *sim) state() string {
	var lines []string
	for id, i := range s.instances {
		lines = append(lines, string(id)+" "+string(i.Node))
	}
	slices.Sort(lines)
	return fmt.Sprint(lines)
}

func (s *sim) gap() float64 {
	low, high := 1.0, 0.0
	for _, n := range s.nodes {
		low, high = min(low, n.use()), max(high, n.use())
	}
	return high - low
}

func TestANodeAddedToTenAtNinetyPerCentIsFilledWithoutMovingAPlayer(t *testing.T) {
	for _, tt := range []struct{ size, playing int }{{10, 0}, {10, 5}, {100, 5}, {25, 3}} {
		t.Run(fmt.Sprintf("instances of %d per mille, one in %d with players", tt.size, tt.playing), func(t *testing.T) {
			s := newSim()
			for n := range 10 {
				id := fleet.NodeID(fmt.Sprintf("n%02d", n))
				s.node(id, 1000, 0)
				for i := range 900 / tt.size {
					if id := s.add(id, fleet.Resources{MemoryMiB: tt.size}); tt.playing > 0 && i%tt.playing == 0 {
						s.stuck[id] = true
					}
				}
			}
			s.node("new", 1000, 0)
			moves := s.settle(t, 10_000)
			t.Logf("gap %.1f %% after %d moves of %d instances", 100*s.gap(), moves, len(s.instances))
			if s.gap() >= 0.15 {
				t.Errorf("a gap of %.1f %% is left", 100*s.gap())
			}
		})
	}
}

func TestWhatIsMoved(t *testing.T) {
	tests := []struct {
		rule  string
		setup func(*sim)
		want  string
	}{
		{"what closes the gap most goes from the fullest to the emptiest", func(s *sim) {
			s.add("a", fleet.Resources{MemoryMiB: 300})
			s.add("a", fleet.Resources{MemoryMiB: 500})
			s.add("a", fleet.Resources{MemoryMiB: 100})
			s.add("b", fleet.Resources{MemoryMiB: 300})
		}, "i00001 a→c"},
		{"a gap below the threshold is left alone", func(s *sim) {
			for _, n := range []fleet.NodeID{"a", "b", "c"} {
				s.add(n, fleet.Resources{MemoryMiB: 400})
			}
			s.add("a", fleet.Resources{MemoryMiB: 90})
		}, ""},
		{"a move that gains too little is not made", func(s *sim) { // 0.6 and 0.2 would become 0.2 and 0.6, or nearly
			s.limits.Margin = 1
			s.add("a", fleet.Resources{MemoryMiB: 600})
			s.add("b", fleet.Resources{MemoryMiB: 400})
			s.add("c", fleet.Resources{MemoryMiB: 200})
		}, ""},
		{"CPU counts as memory does", func(s *sim) {
			s.add("a", fleet.Resources{CPU: 40})
			s.add("a", fleet.Resources{CPU: 40})
		}, "i00000 a→b"},
		{"a node nobody may use is no target", func(s *sim) {
			s.add("a", fleet.Resources{MemoryMiB: 400})
			s.add("a", fleet.Resources{MemoryMiB: 400})
			s.nodes["b"].Usable, s.nodes["c"].Usable = false, false
		}, ""},
		{"and no source: a drain is not our matter", func(s *sim) {
			s.add("a", fleet.Resources{MemoryMiB: 400})
			s.add("a", fleet.Resources{MemoryMiB: 400})
			s.nodes["a"].Usable = false
		}, ""},
		{"what does not fit on the emptiest goes to the next", func(s *sim) {
			s.barred[s.add("a", fleet.Resources{MemoryMiB: 400})] = "b"
			s.barred[s.add("a", fleet.Resources{MemoryMiB: 400})] = "b"
		}, "i00000 a→c"},
		{"no more than may be under way", func(s *sim) {
			s.limits.Moves = 0
			s.add("a", fleet.Resources{MemoryMiB: 400})
			s.add("a", fleet.Resources{MemoryMiB: 400})
		}, ""},
		{"nothing twice within the quiet time", func(s *sim) {
			for range 2 {
				s.instances[s.add("a", fleet.Resources{MemoryMiB: 400})].MovedAt = at(-59 * time.Minute)
			}
		}, ""},
		{"but after it", func(s *sim) {
			for range 2 {
				s.instances[s.add("a", fleet.Resources{MemoryMiB: 400})].MovedAt = at(-time.Hour)
			}
		}, "i00000 a→b"},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			s := newSim()
			for _, n := range []fleet.NodeID{"a", "b", "c"} {
				s.node(n, 1000, 100)
			}
			tt.setup(s)
			got := ""
			for _, m := range Moves(s.input(), at(0)) {
				got += fmt.Sprintf("%s %s→%s", m.Instance, m.From, m.To)
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestItEndsAndNothingComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim()
		s.limits.Threshold = rapid.SampledFrom([]float64{0, 0.05, 0.1, 0.3}).Draw(t, "threshold")
		s.limits.Margin = rapid.SampledFrom([]float64{0.01, 0.5, 1, 2}).Draw(t, "margin")
		s.limits.Moves = rapid.IntRange(1, 4).Draw(t, "moves")
		s.limits.Quiet = rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "quiet")
		for n := range rapid.IntRange(1, 5).Draw(t, "nodes") {
			id := fleet.NodeID(fmt.Sprintf("n%d", n))
			s.node(id, rapid.IntRange(50, 200).Draw(t, "memory"), rapid.IntRange(50, 200).Draw(t, "cpu"))
			s.nodes[id].Usable = rapid.IntRange(0, 5).Draw(t, "usable") > 0
			for range rapid.IntRange(0, 8).Draw(t, "instances") {
				i := s.add(id, fleet.Resources{MemoryMiB: rapid.IntRange(0, 25).Draw(t, "takes"), CPU: rapid.IntRange(0, 25).Draw(t, "takesCPU")})
				s.stuck[i] = rapid.IntRange(0, 3).Draw(t, "stuck") == 0
			}
		}
		s.settle(t, 1000)
	})
}

func TestTheOrderOfRecordsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim()
		for n := range 4 {
			id := fleet.NodeID(fmt.Sprintf("n%d", n))
			s.node(id, 100, 100)
			for range rapid.IntRange(0, 6).Draw(t, "instances") {
				s.add(id, fleet.Resources{MemoryMiB: rapid.SampledFrom([]int{5, 10, 15}).Draw(t, "takes")})
			}
		}
		in := s.input() // Go's random map order shuffles the input
		if a, b := Moves(in, at(0)), Moves(s.input(), at(0)); !slices.Equal(a, b) {
			t.Fatalf("%v, in another order %v", a, b)
		}
	})
}
