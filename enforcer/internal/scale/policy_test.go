package scale

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/scalepolicy"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
)

// asks returns a policy that asks for n instances; a negative n is no answer.
func asks(name string, n int) scaling.Rule {
	return scaling.Rule{Name: name, Ask: func(scaling.Metrics, time.Time) scaling.Answer {
		return scaling.Answer{Instances: n, Given: n >= 0, Message: "it is a test"}
	}}
}

func TestPolicies(t *testing.T) {
	for _, c := range []struct {
		rule    string
		combine scalepolicy.Combine
		rules   []scaling.Rule
		players []int
		to      int // 0: no decision
		policy  string
		reason  fleet.Reason
	}{
		{"a policy raises the number", "", []scaling.Rule{asks("evening", 5)}, []int{1}, 5, "evening", fleet.ReasonPolicy},
		{"the highest of several", scalepolicy.Max, []scaling.Rule{asks("a", 3), asks("b", 4), asks("c", 4), asks("d", -1)}, []int{1}, 4, "b", fleet.ReasonPolicy},
		{"the load is higher", "", []scaling.Rule{asks("a", 2)}, []int{10, 10, 10, 10}, 6, "", fleet.ReasonFullness},
		{"never above the maximum", "", []scaling.Rule{asks("a", 1000)}, []int{1}, 20, "a", fleet.ReasonPolicy},
		{"no answer", "", []scaling.Rule{asks("a", -1)}, []int{1}, 0, "", ""},
		{"a policy keeps idle instances", "", []scaling.Rule{asks("a", 3)}, []int{1, 0, 0, 0, 0}, 3, "", fleet.ReasonIdle},
		{"a satisfied policy decides nothing", "", []scaling.Rule{asks("a", 3)}, []int{1, 0, 0}, 0, "", ""},
		{"the first of a chain", scalepolicy.Chain, []scaling.Rule{asks("a", -1), asks("b", 3), asks("c", 9)}, []int{1}, 3, "b", fleet.ReasonPolicy},
		{"a chain replaces the load", scalepolicy.Chain, []scaling.Rule{asks("a", 4)}, []int{10, 10, 10, 10}, 0, "", ""},
		{"also downwards, but only idle ones", scalepolicy.Chain, []scaling.Rule{asks("a", 0)}, []int{10, 0, 10, 0}, 2, "a", fleet.ReasonPolicy},
		{"a chain without an answer leaves it to the load", scalepolicy.Chain, []scaling.Rule{asks("a", -1)}, []int{10, 10, 10, 10}, 6, "", fleet.ReasonFullness},
	} {
		s := spec(1, 20)
		s.Scaling.Combine = c.combine
		in := group(s, c.players...)
		in.Rules = c.rules
		d := Decide(in, now).Decision
		switch {
		case d == nil && c.to == 0:
		case d == nil || d.To != c.to || d.Policy != c.policy || d.Reason != c.reason:
			t.Errorf("%s: %+v, want to %d because of %q, %s", c.rule, d, c.to, c.policy, c.reason)
		case c.policy != "" && !strings.Contains(d.Message, "policy "+c.policy+" asks for"):
			t.Errorf("%s: the message %q does not name the policy", c.rule, d.Message)
		}
	}
}

func TestAPolicyWaitsForTheCooldownAndItsTime(t *testing.T) {
	in := group(spec(1, 20), 1)
	in.Rules = []scaling.Rule{asks("evening", 5)}
	in.ChangedAt = now.Add(-59 * time.Second)
	if o := Decide(in, now); o.Decision != nil || o.Wake.Sub(now) != time.Second {
		t.Errorf("in the cooldown: %+v", o)
	}
	in = group(spec(1, 20), 1)
	in.Wall = time.Date(2030, 1, 4, 17, 0, 0, 0, time.UTC)
	in.Rules = []scaling.Rule{{Name: "evening", Ask: func(scaling.Metrics, time.Time) scaling.Answer {
		return scaling.Answer{Until: in.Wall.Add(time.Hour)}
	}}}
	if o := Decide(in, now); o.Decision != nil || o.Wake.Sub(now) != time.Hour {
		t.Errorf("before its window: %+v, want to look again when it begins", o)
	}
}

func TestAPolicySeesTheFiguresOfTheGroup(t *testing.T) {
	in := group(spec(1, 20), 7, 3, 0)
	in.Instances[1].TPS, in.Instances[2].TPS = 12, 3
	in.Count = 4
	want := scaling.Metrics{Players: 10, Slots: 30, Free: 20, Instances: 4, Ready: 3, Min: 1, Max: 20, TPS: 12}
	if got := in.Metrics(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	in.Spec.Players.Max = 0
	if got := in.Metrics(); got.Slots != 0 || got.Free != 0 {
		t.Errorf("with an unknown number of slots: %+v", got)
	}
}

// anyRules draws policies that ask for what the players need.
func anyRules(t *rapid.T) []scaling.Rule {
	var out []scaling.Rule
	for range rapid.IntRange(0, 3).Draw(t, "rules") {
		per, plus := rapid.IntRange(1, 20).Draw(t, "per"), rapid.IntRange(-3, 6).Draw(t, "plus")
		out = append(out, scaling.Rule{Name: "p", Ask: func(m scaling.Metrics, _ time.Time) scaling.Answer {
			n := m.Players/per + plus
			return scaling.Answer{Instances: n, Given: n >= 0, Message: "it is a test"}
		}})
	}
	return out
}
