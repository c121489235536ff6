package preempt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
)

func at(d time.Duration) time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC).Add(d) }

// fleetOf is a fleet with the free MiB and ports of each node.
type fleetOf struct {
	nodes []Node
	free  map[fleet.NodeID]fleet.Resources
	ports map[fleet.NodeID]int // free ports; each instance holds one
	needs fleet.Resources
}

// fits checks memory, CPU and one port.
func (f *fleetOf) fits(n fleet.NodeID, without []fleet.InstanceID) bool {
	free, ports := f.free[n], f.ports[n]
	for _, node := range f.nodes {
		for _, i := range node.Instances {
			if node.ID == n && slices.Contains(without, i.ID) {
				free, ports = free.Add(i.Resources), ports+1
			}
		}
	}
	return f.needs.Fits(free) && ports > 0
}

func (f *fleetOf) lack() {
	for n := range f.nodes {
		lacks := f.needs.Sub(f.free[f.nodes[n].ID])
		f.nodes[n].Lacking = larger(lacks, fleet.Resources{})
	}
}

func mem(mib int) fleet.Resources { return fleet.Resources{MemoryMiB: mib} }

// instance parses "id priority MiB minutes-since-placement". A trailing star marks it as
// bound.
func instance(text string) Instance {
	var i Instance
	var id string
	var age int
	fields := strings.TrimSuffix(text, "*")
	if _, err := fmt.Sscan(fields, &id, &i.Priority, &i.Resources.MemoryMiB, &age); err != nil {
		panic(err)
	}
	i.ID, i.Bound, i.Placed = fleet.InstanceID(id), fields != text, -int64(age)
	return i
}

func TestVictims(t *testing.T) {
	tests := []struct {
		rule  string
		needs int
		// nodes are "free: instance, instance", named n1, n2, …
		nodes []string
		want  string
	}{
		{"fewest first, whatever their priority", 100, []string{"0: a 1 50 9, b 1 50 9, c 30 100 1"}, "n1 c"},
		{"then the lowest priority", 100, []string{"0: a 20 100 1, b 10 100 9"}, "n1 b"},
		{"then the youngest", 100, []string{"0: a 10 100 9, b 10 100 1"}, "n1 b"},
		{"on whatever node", 100, []string{"0: a 10 100 9", "50: b 10 60 1", "0: c 20 100 1"}, "n2 b"},
		{"the dearest of a set decides before the others", 100, []string{"0: a 1 50 1, b 30 50 1", "0: c 20 50 1, d 20 50 1"}, "n2 d c"},
		{"nobody within ten of the own priority", 100, []string{"0: a 41 100 1, b 50 100 1, c 99 100 1"}, ""},
		{"ten below is enough", 100, []string{"0: a 40 100 1"}, "n1 a"},
		{"nobody who is bound", 100, []string{"0: a 1 100 1*"}, ""},
		{"what is free counts", 100, []string{"90: a 1 100 1, b 0 10 1"}, "n1 b"},
		{"nobody when all of them are not enough", 500, []string{"0: a 1 100 1, b 1 100 1"}, ""},
		{"several when one is not enough", 250, []string{"0: a 1 100 3, b 2 100 2, c 3 100 1"}, "n1 c b a"},
		{"nobody who would be superfluous", 100, []string{"0: a 1 10 1, b 1 100 1"}, "n1 b"},
		{"nobody on an empty fleet", 100, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			f := &fleetOf{free: map[fleet.NodeID]fleet.Resources{}, ports: map[fleet.NodeID]int{}, needs: mem(tt.needs)}
			for n, text := range tt.nodes {
				id := fleet.NodeID(fmt.Sprintf("n%d", n+1))
				free, rest, _ := strings.Cut(text, ": ")
				node := Node{ID: id}
				for part := range strings.SplitSeq(rest, ", ") {
					node.Instances = append(node.Instances, instance(part))
				}
				var mib int
				_, _ = fmt.Sscan(free, &mib)
				f.nodes, f.free[id], f.ports[id] = append(f.nodes, node), mem(mib), 1
			}
			f.lack()
			got := ""
			if v, ok := Choose(50, f.nodes, f.fits); ok {
				got = text(v)
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func text(v Victims) string {
	parts := []string{string(v.Node)}
	for _, i := range v.Instances {
		parts = append(parts, string(i.ID))
	}
	return strings.Join(parts, " ")
}

// anyFleet draws a fleet where the instance fits nowhere.
func anyFleet(t *rapid.T) *fleetOf {
	f := &fleetOf{free: map[fleet.NodeID]fleet.Resources{}, ports: map[fleet.NodeID]int{}}
	f.needs = fleet.Resources{MemoryMiB: rapid.IntRange(1, 120).Draw(t, "needs"), CPU: rapid.IntRange(0, 60).Draw(t, "needsCPU")}
	for n := range rapid.IntRange(1, 4).Draw(t, "nodes") {
		node := Node{ID: fleet.NodeID(fmt.Sprintf("n%d", n))}
		for i := range rapid.IntRange(0, 7).Draw(t, "instances") {
			node.Instances = append(node.Instances, Instance{
				ID:        fleet.InstanceID(fmt.Sprintf("i%d%d", n, i)),
				Priority:  rapid.SampledFrom([]int{0, 10, 20, 40, 45, 90}).Draw(t, "priority"),
				Resources: fleet.Resources{MemoryMiB: rapid.IntRange(0, 50).Draw(t, "memory"), CPU: rapid.IntRange(0, 30).Draw(t, "cpu")},
				Placed:    -rapid.Int64Range(0, 3).Draw(t, "age"),
				Bound:     rapid.IntRange(0, 5).Draw(t, "bound") == 0,
			})
		}
		f.free[node.ID] = fleet.Resources{MemoryMiB: rapid.IntRange(-10, 40).Draw(t, "free"), CPU: rapid.IntRange(0, 30).Draw(t, "freeCPU")}
		f.ports[node.ID] = rapid.IntRange(0, 1).Draw(t, "ports")
		f.nodes = append(f.nodes, node)
		if f.fits(node.ID, nil) {
			f.ports[node.ID] = 0
		}
	}
	f.lack()
	return f
}

// oracle tries every set.
func oracle(f *fleetOf, priority int) (best Victims, ok bool) {
	for _, n := range f.nodes {
		may := candidates(n.Instances, priority)
		for bits := 1; bits < 1<<len(may); bits++ {
			var set []Instance
			for i, c := range slices.Backward(may) {
				if bits&(1<<i) != 0 {
					set = append(set, c)
				}
			}
			if f.fits(n.ID, ids(set)) && (!ok || compare(set, best.Instances) < 0) {
				best, ok = Victims{n.ID, set}, true
			}
		}
	}
	return best, ok
}

func TestTheCheapestOfAllSetsIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFleet(t)
		got, ok := Choose(50, f.nodes, f.fits)
		want, possible := oracle(f, 50)
		if ok != possible || text(got) != text(want) {
			t.Fatalf("%q, the cheapest is %q", text(got), text(want))
		}
	})
}

func TestNobodyIsAVictimWhoMayNotBeOrNeedNotBe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFleet(t)
		left := rapid.IntRange(0, 3).Draw(t, "steps") // too few to search, so the set is only minimal
		for _, s := range searches(50, f.nodes, f.fits, &left) {
			if !f.fits(s.node, ids(s.candidates)) {
				continue
			}
			set := s.cheapest(len(s.candidates))
			if set == nil || !f.fits(s.node, ids(set)) {
				t.Fatalf("%v do not make room on %s, all would", ids(set), s.node)
			}
			for n, v := range set {
				if v.Bound || v.Priority > 50-Gap {
					t.Fatalf("%+v may not be a victim", v)
				}
				if f.fits(s.node, ids(slices.Delete(slices.Clone(set), n, n+1))) {
					t.Fatalf("%s is superfluous in %v", v.ID, ids(set))
				}
			}
		}
	})
}

func TestTheOrderOfNodesAndInstancesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFleet(t)
		want, _ := Choose(50, f.nodes, f.fits)
		slices.Reverse(f.nodes)
		for n := range f.nodes {
			slices.SortFunc(f.nodes[n].Instances, func(a, b Instance) int { return cmp.Compare(b.ID, a.ID) })
		}
		if got, _ := Choose(50, f.nodes, f.fits); text(got) != text(want) {
			t.Fatalf("%q, in another order %q", text(want), text(got))
		}
	})
}

func TestALargeNodeIsSearchedWithinBounds(t *testing.T) {
	f := &fleetOf{free: map[fleet.NodeID]fleet.Resources{}, ports: map[fleet.NodeID]int{"n": 1}, needs: mem(1000)}
	node := Node{ID: "n"}
	for i := range 200 {
		node.Instances = append(node.Instances, Instance{ID: fleet.InstanceID(fmt.Sprintf("i%03d", i)), Resources: mem(30 + i%7)})
	}
	f.nodes = []Node{node}
	f.lack()
	asked := 0
	v, ok := Choose(50, f.nodes, func(n fleet.NodeID, without []fleet.InstanceID) bool { asked++; return f.fits(n, without) })
	if !ok || asked > steps+2*len(node.Instances) {
		t.Errorf("found %v after %d questions", ok, asked)
	}
	for n := range v.Instances {
		if f.fits("n", ids(slices.Delete(slices.Clone(v.Instances), n, n+1))) {
			t.Errorf("%s is superfluous", v.Instances[n].ID)
		}
	}
}

func TestRoomIsMadeOnceAMinuteForOne(t *testing.T) {
	var p Pace
	if !p.Ready("x").IsZero() {
		t.Error("the first has to wait")
	}
	p.Made("x", at(0))
	if got := p.Ready("x"); !got.Equal(at(Quiet)) {
		t.Errorf("ready at %v", got)
	}
	p.Made("y", at(2*Quiet))
	if !p.Ready("x").IsZero() || len(p.made) != 1 {
		t.Errorf("it remembers for ever: %v", p.made)
	}
}
