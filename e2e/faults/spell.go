package main

import (
	"slices"
	"time"

	"github.com/orreryhq/orrery/e2e/faults/plan"
	"github.com/orreryhq/orrery/e2e/faults/record"
	"github.com/orreryhq/orrery/libs/fleet"
)

// aftermath is how long after its end a fault may still end a session: the TTL, and
// what etcd and an agent need to find to each other again.
const aftermath = plan.TTL + 5*time.Second

// spell is the time a fault lasted.
type spell struct {
	fault    plan.Fault
	from, to record.Time // to is 0 while it lasts
}

// began notes a fault's beginning; the returned function notes its end.
func (t *trial) began(f plan.Fault) (over func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.hurts)
	t.hurts = append(t.hurts, spell{fault: f, from: record.Now()})
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.hurts[n].to = record.Now()
	}
}

// mayExpire reports whether a fault that touches a node, or etcd, explains that the
// node's session was about to expire.
func (t *trial) mayExpire(node fleet.NodeID, at record.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.hurts, func(s spell) bool {
		lasted := s.from <= at && (s.to == 0 || at <= s.to+record.Time(aftermath))
		return lasted && t.touches(s.fault, node)
	})
}

// touches reports whether a fault may keep a node from renewing its session.
func (t *trial) touches(f plan.Fault, node fleet.NodeID) bool {
	switch f.Kind {
	case plan.Outage:
		return true
	case plan.Compact, plan.KillWorkload, plan.Scale:
		return false
	}
	return f.Target == string(node) || slices.Contains(t.scenario.MemberNames(), f.Target)
}
