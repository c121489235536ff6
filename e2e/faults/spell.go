package main

import (
	"slices"
	"time"

	"github.com/orreryhq/orrery/e2e/faults/plan"
	"github.com/orreryhq/orrery/e2e/faults/record"
	"github.com/orreryhq/orrery/libs/fleet"
)

// revokesAfter is how long a leader of etcd must hang before it may, after it resumes,
// revoke leases that were renewed meanwhile. A node renews each third of the TTL, so more
// than half of it is left on the leader's clock.
const revokesAfter = plan.TTL / 2

// aftermath is how long after its end a fault may still end a session: the TTL, plus the
// time in which etcd and an agent reconnect.
const aftermath = plan.TTL + 5*time.Second

// spell is the duration of a fault.
type spell struct {
	fault    plan.Fault
	from, to record.Time // to is 0 while it lasts
}

// began records the beginning of a fault; over records its end.
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

// mayExpire reports whether faults explain that a node's session was about to expire.
func (t *trial) mayExpire(node fleet.NodeID, at record.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return mayExpire(t.hurts, t.scenario.MemberNames(), string(node), at)
}

// mayExpire reports whether the node could not reach a majority of the members, or whether
// a member hung long enough to revoke leases.
func mayExpire(hurts []spell, members []string, node string, at record.Time) bool {
	missing := map[string]bool{}
	for _, s := range hurts {
		if s.from > at || s.to != 0 && at > s.to+record.Time(aftermath) {
			continue
		}
		if s.revokes(members, at) {
			return true
		}
		for _, m := range unreachable(s.fault, members, node) {
			missing[m] = true
		}
	}
	return 2*len(missing) > len(members)
}

// revokes reports whether a member had just resumed after a long hang.
func (s spell) revokes(members []string, at record.Time) bool {
	return s.fault.Kind == plan.Pause && slices.Contains(members, s.fault.Target) &&
		s.to != 0 && at >= s.to && s.to-s.from >= record.Time(revokesAfter)
}

// unreachable returns the etcd members that a fault may hide from a node.
func unreachable(f plan.Fault, members []string, node string) []string {
	switch f.Kind {
	case plan.Outage:
		return members
	case plan.Compact, plan.KillWorkload, plan.Scale, plan.Switch, plan.Deploy, plan.Drain, plan.Move:
		return nil
	case plan.Kill, plan.Stop, plan.Pause, plan.PowerCut, plan.FillDisk:
		if slices.Contains(members, f.Target) {
			return []string{f.Target}
		}
	case plan.CutBoth, plan.CutUp, plan.CutDown, plan.Delay, plan.HalfOpen, plan.Refuse:
		switch {
		case f.Target != node:
			return nil
		case slices.Contains(members, f.Peer):
			return []string{f.Peer}
		case f.Peer != "":
			return nil
		}
	}
	if f.Target == node {
		return members
	}
	return nil
}
