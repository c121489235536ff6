package reports

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
)

func TestBlameDistinguishesRevisionAndNode(t *testing.T) {
	crash := func(g, node, failure string) *Crash {
		return &Crash{Group: fleet.GroupName(g), Node: fleet.NodeID(node), Fingerprint: failure, Category: CrashGeneral, Cause: "cause " + failure}
	}
	cases := []struct {
		rule string
		all  []*Crash
		want crashloop.Suspect
		says string
	}{
		{"nothing is known", nil, "", ""},
		{"one crash says nothing", []*Crash{crash("a", "n1", "x")}, "", ""},
		{"the same failure on several nodes", []*Crash{crash("a", "n1", "x"), crash("a", "n2", "x"), crash("a", "n2", "x")}, SuspectRevision, "cause x"},
		{"the same failure on the only node says nothing", []*Crash{crash("a", "n1", "x"), crash("a", "n1", "x"), crash("a", "n1", "x")}, "", ""},
		{"several groups and failures on one node", []*Crash{crash("a", "n1", "x"), crash("a", "n1", "y"), crash("b", "n1", "z")}, SuspectNode, "node n1"},
		{"several groups fail alike on one node", []*Crash{crash("a", "n1", "x"), crash("a", "n1", "x"), crash("b", "n1", "x")}, "", ""},
		{"several failures of one group on one node", []*Crash{crash("a", "n1", "x"), crash("a", "n1", "y")}, "", ""},
		{"another group's trouble on another node", []*Crash{crash("a", "n1", "x"), crash("a", "n1", "y"), crash("b", "n2", "z")}, "", ""},
		{"the revision comes before the node", []*Crash{crash("a", "n1", "x"), crash("a", "n1", "x"), crash("a", "n2", "x"), crash("b", "n1", "z")}, SuspectRevision, "2 nodes"},
		{"most have to agree", []*Crash{crash("a", "n1", "x"), crash("a", "n2", "y"), crash("a", "n3", "z"), crash("a", "n4", "x")}, "", ""},
	}
	for _, c := range cases {
		var own []*Crash
		for _, one := range c.all {
			if one.Group == "a" {
				own = append(own, one)
			}
		}
		got := BlameOf(own, c.all)
		if got.Suspect != c.want || !strings.Contains(got.Because, c.says) || (got.Suspect == SuspectNode) != (got.Node != "") {
			t.Errorf("%s: %+v", c.rule, got)
		}
	}
}
