package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// remove deletes records, as other services do when objects are gone for good.
func (l *lagging) remove(ids []fleet.InstanceID, group fleet.GroupName, node fleet.NodeID, quota string) {
	l.t.Helper()
	s := l.view.Snapshot()
	var writes []store.Write
	for _, id := range ids {
		i, _ := s.Instances.Get(id)
		writes = append(writes, store.Remove(keys.Intent(id), i.Intent.ModRev))
		if i.Placement != nil {
			writes = append(writes, store.Remove(keys.Placement(i.Placement.Node, id), i.Placement.ModRev))
		}
		if i.Status != nil {
			writes = append(writes, store.Remove(keys.Status(id), i.Status.ModRev))
		}
		if i.Pending != nil {
			writes = append(writes, store.Remove(keys.Pending(id), i.Pending.ModRev))
		}
	}
	g, _ := s.Groups.Get(group)
	n, _ := s.Nodes.Get(node)
	session, _ := s.NodeSessions.Get(node)
	q, _ := s.Quotas.Get(quota)
	a, _ := s.Allocs.Get(node)
	writes = append(writes, store.Remove(keys.Group(group), g.ModRev), store.Remove(keys.Node(node), n.ModRev),
		store.Remove(keys.NodeSession(node), session.ModRev), store.Remove(keys.Quota(quota), q.ModRev),
		store.Forget(keys.QuotaAlloc(quota)))
	if a != nil {
		writes = append(writes, store.Remove(keys.Alloc(node), a.ModRev))
	}
	for digest, stored := range s.Plans.All() {
		writes = append(writes, store.Remove(keys.Plan(digest), stored.ModRev))
	}
	l.write(writes...)
}

// Groups, plans, quotas, nodes and instances come and go and must leave nothing in memory.
func TestNothingGrowsWithWhatHasComeAndGone(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	for n := range 12 {
		node, group, quota := fleet.NodeID(fmt.Sprint("n", n)), fleet.GroupName(fmt.Sprint("g", n)), fmt.Sprint("q", n)
		l.node(node, 25)
		l.write(store.Create(keys.Quota(quota), cluster.Quota{Name: quota, Selector: map[string]string{"tenant": quota}, Limit: fleet.Budget{Instances: 9}}))
		ids := l.want(group, 4, func(s *fleet.GroupSpec) {
			s.Labels = map[string]string{"tenant": quota}
			s.Where.Spread, s.Where.MaxSkew = "zone", 1
			s.Rebalance = true
		})
		l.desire(fleet.NodeDesired{Node: node, Labels: map[string]string{"zone": string(group)}})
		l.settle()
		placed := 0
		for _, id := range ids {
			if i, _ := l.view.Snapshot().Instances.Get(id); i.Placement != nil {
				placed++
				l.end(id)
			}
		}
		if placed != 2 {
			t.Fatalf("%d of 4 placed in the room of 2", placed)
		}
		l.remove(ids, group, node, quota)
		d, _ := l.view.Snapshot().NodesDesired.Get(node)
		l.write(store.Remove(keys.NodeDesired(node), d.ModRev))
		l.settle()
	}
	l.wantIdle(0)
	s := l.ctl.state
	l.ctl.pass(t.Context(), time.Now().Add(resync))
	nodes := 0
	for range s.ledger.Nodes() {
		nodes++
	}
	for what, n := range map[string]int{
		"node queues": len(s.queues), "classes": len(s.classes), "waiters set aside": len(s.aside), "kept": len(s.nominated), "balanced": len(s.balanced), "skewed": len(s.awaitsSkew),
		"quota locks": len(l.ctl.quotaLocks), "landed": len(l.ctl.unconfirmed), "losers": len(l.ctl.retries), "doubts": len(l.ctl.unknown), "notes": len(l.ctl.notes),
		"sendable queues": len(l.ctl.sendable), "queues that await the view": len(l.ctl.awaitingView), "queues that await a quota": len(l.ctl.awaitingQuota), "nodes in the ledger": nodes,
	} {
		if n > 0 {
			t.Errorf("%d %s are left", n, what)
		}
	}
}
