package names

import (
	"strings"
	"testing"
)

func TestNamesAreMadeValid(t *testing.T) {
	for _, c := range []struct {
		make         func(string) string
		wanted, want string
	}{
		{Group, "lobby", "lobby"},
		{Group, "My Server!", "my-server"},
		{Group, "-x-", "x"},
		{Group, "", "group"},
		{Group, strings.Repeat("A", 40), strings.Repeat("a", 32)},
		{Segment, "map-1.2", "map-1.2"},
		{Segment, ".hidden", "hidden"},
		{Segment, "a b/c", "a-b-c"},
		{Segment, "", "template"},
		{Variable, "MAX_PLAYERS", "MAX_PLAYERS"},
		{Variable, "8bit mode", "_8bit_mode"},
		{Variable, "", "_"},
	} {
		if got := c.make(c.wanted); got != c.want {
			t.Errorf("%q became %q, want %q", c.wanted, got, c.want)
		}
	}
}

func FuzzNames(f *testing.F) {
	f.Add("My Server!")
	f.Fuzz(func(t *testing.T, wanted string) {
		if name := Group(wanted); !IsGroup(name) {
			t.Errorf("%q became the group %q", wanted, name)
		}
		if name := Segment(wanted); !segmentPattern().MatchString(name) {
			t.Errorf("%q became the segment %q", wanted, name)
		}
		if name := Variable(wanted); !IsVariable(name) {
			t.Errorf("%q became the variable %q", wanted, name)
		}
	})
}
