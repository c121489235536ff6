package fleet

import (
	"testing"

	"pgregory.net/rapid"
)

func TestFitsIgnoresUnrequestedResources(t *testing.T) {
	cases := []struct {
		rule       string
		want, free Resources
		ok         bool
	}{
		{"all of it", Resources{1, 2, 3}, Resources{1, 2, 3}, true},
		{"nothing", Resources{}, Resources{}, true},
		{"nothing, where too much is held", Resources{}, Resources{-1, -1, -1}, true},
		{"memory is short", Resources{2, 0, 0}, Resources{1, 9, 9}, false},
		{"CPU is short", Resources{0, 2, 0}, Resources{9, 1, 9}, false},
		{"disk is short", Resources{0, 0, 2}, Resources{9, 9, 1}, false},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			if c.want.Fits(c.free) != c.ok {
				t.Errorf("fits is not %v", c.ok)
			}
		})
	}
}

func TestResourcesAddAndSubAreInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) Resources {
			g := rapid.IntRange(-1000, 1000)
			return Resources{g.Draw(t, label), g.Draw(t, label), g.Draw(t, label)}
		}
		a, b := draw("a"), draw("b")
		if a.Add(b).Sub(b) != a || a.Add(b) != b.Add(a) {
			t.Fatalf("%+v and %+v", a, b)
		}
	})
}

func TestPortRangeLen(t *testing.T) {
	for _, r := range []PortRange{{1, 1}, {5, 9}, {9, 5}, {}} {
		n := 0
		for p := -1; p < 20; p++ {
			if r.Contains(p) {
				n++
			}
		}
		if n != r.Len() {
			t.Errorf("%+v: %d ports, Len %d", r, n, r.Len())
		}
	}
}

func TestWhereAllows(t *testing.T) {
	for _, c := range []struct {
		nodes []NodeID
		want  bool
	}{{nil, true}, {[]NodeID{"n1"}, true}, {[]NodeID{"n2"}, false}, {[]NodeID{"n2", "*"}, true}} {
		if got := (Where{Nodes: c.nodes}).Allows("n1"); got != c.want {
			t.Errorf("%v allows n1: %v", c.nodes, got)
		}
	}
}
