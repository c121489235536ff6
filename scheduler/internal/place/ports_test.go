package place_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

func named(name string, start, end int) fleet.NamedPort {
	return fleet.NamedPort{Name: name, Protocol: "tcp", Range: fleet.PortRange{Start: start, End: end}}
}

func TestWhichPortsAreChosen(t *testing.T) {
	cases := []struct {
		rule      string
		main      fleet.PortRange
		more      []fleet.NamedPort
		held      []int
		blocked   []int
		preferred int
		want      int
		named     map[string]int
	}{
		{rule: "the lowest", main: fleet.PortRange{Start: 10, End: 12}, want: 10},
		{rule: "the lowest that nobody holds", main: fleet.PortRange{Start: 10, End: 12}, held: []int{10}, want: 11},
		{rule: "the lowest that no stranger holds", main: fleet.PortRange{Start: 10, End: 12}, blocked: []int{10, 11}, want: 12},
		{rule: "the one it had", main: fleet.PortRange{Start: 10, End: 12}, preferred: 12, want: 12},
		{rule: "another when the one it had is held", main: fleet.PortRange{Start: 10, End: 12}, preferred: 12, held: []int{12}, want: 10},
		{rule: "another when the one it had is a stranger's", main: fleet.PortRange{Start: 10, End: 12}, preferred: 10, blocked: []int{10}, want: 11},
		{rule: "another when the one it had is outside the range now", main: fleet.PortRange{Start: 10, End: 12}, preferred: 13, want: 10},
		{rule: "one above a range of one", main: fleet.PortRange{Start: 10, End: 10}, held: []int{9, 11}, want: 10},
		{
			rule: "additional ports in the order of the group", main: fleet.PortRange{Start: 10, End: 19},
			more: []fleet.NamedPort{named("query", 10, 19), named("rcon", 10, 19)},
			want: 10, named: map[string]int{"query": 11, "rcon": 12},
		},
		{
			rule: "the main port leaves an additional one its only port", main: fleet.PortRange{Start: 10, End: 11},
			more: []fleet.NamedPort{named("query", 10, 10)}, want: 11, named: map[string]int{"query": 10},
		},
		{
			rule: "so does the one it had", main: fleet.PortRange{Start: 10, End: 12}, preferred: 11,
			more: []fleet.NamedPort{named("query", 11, 11)}, want: 10, named: map[string]int{"query": 11},
		},
		{
			rule: "a wide additional range leaves a narrow one its only port", main: fleet.PortRange{Start: 1, End: 1},
			more: []fleet.NamedPort{named("wide", 10, 11), named("narrow", 10, 10)}, want: 1, named: map[string]int{"wide": 11, "narrow": 10},
		},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			m := place.NewModel()
			m.SetNode(node("n"), c.blocked)
			m.Charge(place.Hold{Node: "n", Group: "other", Ports: c.held})
			got, u := m.Place(request(func(r *place.Request) {
				r.Plan.Ports, r.Plan.AdditionalPorts = c.main, c.more
				r.PreferredNode, r.PreferredPort = "n", c.preferred
			}))
			if u != nil {
				t.Fatal(u.Message)
			}
			if got.Port != c.want || !maps.Equal(got.Ports, c.named) {
				t.Errorf("got %d and %v, want %d and %v", got.Port, got.Ports, c.want, c.named)
			}
		})
	}
}

func TestThePortOfAnotherNodeIsNotPreferred(t *testing.T) {
	m := model(node("n"))
	c, u := m.Place(request(func(r *place.Request) { r.PreferredNode, r.PreferredPort = "elsewhere", 102 }))
	if u != nil || c.Port != 100 {
		t.Errorf("%+v, %+v", c, u)
	}
}

func TestAStrangersPortIsFreeOnceWhateverOftenTheNodeIsSet(t *testing.T) {
	m := place.NewModel()
	for range 3 {
		m.SetNode(node("n"), []int{100, 101, 102})
	}
	if _, u := m.Place(request()); u == nil {
		t.Error("a stranger's port was given")
	}
	m.SetNode(node("n"), nil)
	if c, u := m.Place(request()); u != nil || c.Port != 100 {
		t.Errorf("%+v, %+v", c, u)
	}
}

func TestTheStrangerThatHoldsAPortIsNamed(t *testing.T) {
	m := place.NewModel()
	n := node("n")
	n.BlockedBy = []fleet.BlockedPort{{Port: 99, By: "nginx (pid 1)"}, {Port: 100, By: "java (pid 4711)"}}
	only := func(r *place.Request) { r.Plan.Ports = fleet.PortRange{Start: 100, End: 100} }
	advice := func() string {
		t.Helper()
		_, u := m.Place(request(only))
		if u == nil {
			t.Fatal("placed")
		}
		return u.Message
	}
	m.SetNode(n, []int{99, 100})
	if got := advice(); !strings.Contains(got, "end java (pid 4711), which holds 100, or widen") {
		t.Errorf("advice %q", got)
	}
	m.SetNode(n, nil)
	m.Charge(place.Hold{Node: "n", Group: "other", Ports: []int{100}})
	if got := advice(); strings.Contains(got, "java") {
		t.Errorf("a stranger that has gone is named: %q", got)
	}
}

func TestAPortHeldByAStrangerAndAnInstanceIsFreeWhenBothLetGo(t *testing.T) {
	m := place.NewModel()
	m.SetNode(node("n"), nil)
	only := func(r *place.Request) { r.Plan.Ports = fleet.PortRange{Start: 100, End: 100} }
	mine, _ := m.Place(request(only))
	m.SetNode(node("n"), []int{100})
	m.Release(mine.Hold)
	if _, u := m.Place(request(only)); u == nil {
		t.Error("given while a stranger has it")
	}
	m.SetNode(node("n"), nil)
	if _, u := m.Place(request(only)); u != nil {
		t.Error(u.Message)
	}
}

// portsFit tries every assignment of distinct free ports.
func portsFit(ranges []fleet.PortRange, taken map[int]bool) bool {
	if len(ranges) == 0 {
		return true
	}
	for p := ranges[0].Start; p <= ranges[0].End; p++ {
		if taken[p] {
			continue
		}
		taken[p] = true
		ok := portsFit(ranges[1:], taken)
		delete(taken, p)
		if ok {
			return true
		}
	}
	return false
}

func TestPortsAreFoundWheneverThereAreAny(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		span := func(label string) fleet.PortRange {
			start := rapid.IntRange(1, 6).Draw(t, label)
			return fleet.PortRange{Start: start, End: start + rapid.IntRange(0, 4).Draw(t, label+"Len")}
		}
		r := request(func(r *place.Request) { r.Plan.Ports = span("main") })
		ranges := []fleet.PortRange{r.Plan.Ports}
		for i := range rapid.IntRange(0, 4).Draw(t, "additional") {
			np := fleet.NamedPort{Name: string(rune('a' + i)), Range: span("range")}
			r.Plan.AdditionalPorts, ranges = append(r.Plan.AdditionalPorts, np), append(ranges, np.Range)
		}
		r.PreferredNode, r.PreferredPort = "n", rapid.IntRange(0, 8).Draw(t, "preferred")
		held := rapid.SliceOfDistinct(rapid.IntRange(1, 10), rapid.ID[int]).Draw(t, "held")
		taken := map[int]bool{}
		for _, p := range held {
			taken[p] = true
		}
		m := model(node("n"))
		m.Charge(place.Hold{Node: "n", Group: "other", Ports: held})
		c, u := m.Place(r)
		if want := portsFit(ranges, taken); (u == nil) != want {
			t.Fatalf("found: %v, exist: %v (%v, held %v)", u == nil, want, ranges, held)
		}
		if u != nil {
			return
		}
		got := map[int]bool{c.Port: r.Plan.Ports.Contains(c.Port)}
		for _, np := range r.Plan.AdditionalPorts {
			p := c.Ports[np.Name]
			if _, twice := got[p]; twice {
				t.Fatalf("port %d was given twice: %+v", p, c)
			}
			got[p] = np.Range.Contains(p)
		}
		for p, inRange := range got {
			if !inRange || taken[p] {
				t.Fatalf("port %d is held or outside its range: %+v", p, c)
			}
		}
	})
}

// Trying every main port would take minutes.
func TestThatPortsCannotAllBeHadIsFoundOutWithoutTryingThemAll(t *testing.T) {
	m := place.NewModel()
	for i := range 2000 {
		m.SetNode(node(fleet.NodeID(fmt.Sprint("n", i))), []int{7})
	}
	wide := fleet.PortRange{Start: 2000, End: 65535}
	unfit := func(more ...fleet.NamedPort) {
		t.Helper()
		_, u := m.Place(request(func(r *place.Request) { r.Plan.Ports, r.Plan.AdditionalPorts = wide, more }))
		if u == nil || len(u.Lost) != 1 || u.Lost[0].Filter != "ports" {
			t.Errorf("%+v", u)
		}
	}
	unfit(named("query", 7, 7), named("rcon", wide.Start, wide.End))
	var many []fleet.NamedPort
	for i := range 200 {
		many = append(many, named(fmt.Sprint("p", i), 2000, 2198)) // one port too few
	}
	unfit(many...)
}
