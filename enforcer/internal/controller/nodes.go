package controller

import (
	"context"
	"errors"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// A node's own records belong to whoever owns the shard its id hashes to, as if it
// were a group.

// removeNodes removes the records of nodes that an operator deleted, once nothing
// is left on them.
func (c *Controller) removeNodes(ctx context.Context, s *view.Snapshot, own *store.Ownership) error {
	var failed error
	for n, desired := range s.NodesDesired.All() {
		fence, ok := own.Fence(fleet.GroupName(n))
		if _, alive := s.NodeSessions.Get(n); !ok || alive || !desired.Deleted || holdsAnything(s, n) {
			continue
		}
		rev, err := c.store.Commit(ctx, removal(s, n, fence))
		if err != nil {
			failed = errors.Join(failed, errs.Wrap("enforcer.removeNodes", err))
			continue
		}
		c.log.Info("node removed", "node", n, "by", desired.By)
		if _, err := c.view.WaitRev(ctx, rev); err != nil {
			return err
		}
	}
	return failed
}

func holdsAnything(s *view.Snapshot, n fleet.NodeID) bool {
	for i := range s.NodeInstances(n) {
		if i.HoldsNode() {
			return true
		}
	}
	return false
}

// removal is the transaction that forgets a node, on the condition that it has not
// come back.
func removal(s *view.Snapshot, n fleet.NodeID, fence store.Fence) store.Txn {
	t := store.Txn{Fences: []store.Fence{fence}, Guards: []store.Guard{store.Missing(store.NodeSessionKey(n))}}
	if r, ok := s.Nodes.Get(n); ok {
		t.Writes = append(t.Writes, store.Remove(store.NodeKey(n), r.ModRev))
	}
	if r, ok := s.NodesDesired.Get(n); ok {
		t.Writes = append(t.Writes, store.Remove(store.NodeDesiredKey(n), r.ModRev))
	}
	if r, ok := s.Reports.Get(n); ok {
		t.Writes = append(t.Writes, store.Remove(store.ReportKey(n), r.ModRev))
	}
	for part, r := range s.PlayersOn(n) {
		t.Writes = append(t.Writes, store.Remove(store.PlayersKey(n, part), r.ModRev))
	}
	if r, ok := s.Allocs.Get(n); ok { // a placement decided meanwhile compares it
		t.Writes = append(t.Writes, store.Remove(store.AllocKey(n), r.ModRev))
	} else { // so does the first one
		t.Guards = append(t.Guards, store.Missing(store.AllocKey(n)))
	}
	return t
}
