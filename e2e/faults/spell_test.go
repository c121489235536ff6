package main

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/e2e/faults/plan"
	"github.com/orreryhq/orrery/e2e/faults/record"
)

func TestOneMemberOfThreeExplainsNoEndOfASession(t *testing.T) {
	const node = "node-1"
	three := []string{"etcd-1", "etcd-2", "etcd-3"}
	during := func(kind plan.Kind, target, peer string) spell {
		return spell{fault: plan.Fault{Kind: kind, Target: target, Peer: peer}, from: record.Time(time.Second)}
	}
	over := func(s spell, after time.Duration) spell {
		s.to = s.from + record.Time(after)
		return s
	}
	long, short := 2*plan.TTL, plan.TTL/4
	cases := []struct {
		name    string
		members []string
		hurts   []spell
		want    bool
	}{
		{"nothing", three, nil, false},
		{"one of three hangs", three, []spell{during(plan.Pause, "etcd-1", "")}, false},
		{"one of three is killed", three, []spell{during(plan.Kill, "etcd-1", "")}, false},
		{"the only one hangs", three[:1], []spell{during(plan.Pause, "etcd-1", "")}, true},
		{"two of three hang", three, []spell{during(plan.Pause, "etcd-1", ""), during(plan.Pause, "etcd-2", "")}, true},
		{"one of three hangs twice", three, []spell{during(plan.Pause, "etcd-1", ""), during(plan.Pause, "etcd-1", "")}, false},
		{"one of three hung for long", three, []spell{over(during(plan.Pause, "etcd-1", ""), long)}, true},
		{"one of three hung for a moment", three, []spell{over(during(plan.Pause, "etcd-1", ""), short)}, false},
		{"the way to one of three is cut", three, []spell{during(plan.CutBoth, node, "etcd-1")}, false},
		{"the way to one is cut, another hangs", three, []spell{during(plan.CutBoth, node, "etcd-1"), during(plan.Pause, "etcd-2", "")}, true},
		{"the way to all is cut", three, []spell{during(plan.HalfOpen, node, "")}, true},
		{"the way to the templates is cut", three, []spell{during(plan.CutBoth, node, "templatesvc-1")}, false},
		{"the way of another node is cut", three, []spell{during(plan.CutBoth, "node-2", "")}, false},
		{"the agent hangs", three, []spell{during(plan.Pause, node, "")}, true},
		{"another agent hangs", three, []spell{during(plan.Pause, "node-2", "")}, false},
		{"etcd is away", three, []spell{during(plan.Outage, "", "")}, true},
		{"an instance moves there", three, []spell{during(plan.Move, "world-1", "")}, false},
		{"history is compacted", three, []spell{during(plan.Compact, "", "")}, false},
		{"two of three were killed long ago", three, []spell{over(during(plan.Kill, "etcd-1", ""), 0), over(during(plan.Kill, "etcd-2", ""), 0)}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := mayExpire(c.hurts, c.members, node, record.Time(10*time.Second)); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
