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
		memory, err := c.remembering(ctx, s, n, desired.By)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		txn := removal(s, n, fence)
		txn.Writes = append(txn.Writes, memory)
		rev, err := c.store.Commit(ctx, txn)
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

// remembering notes that a node was deleted, in place of an earlier deletion of it.
func (c *Controller) remembering(ctx context.Context, s *view.Snapshot, n fleet.NodeID, by string) (store.Write, error) {
	key := store.DeletedNodeKey(n)
	earlier, err := store.Get(ctx, c.store, key)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return store.Write{}, errs.Wrap("enforcer.remembering", err)
	}
	lease, err := c.store.Grant(ctx, fleet.DeletedNodeFor)
	if err != nil {
		return store.Write{}, errs.Wrap("enforcer.remembering", err)
	}
	gone := fleet.DeletedNode{Node: n, By: by, At: c.wall().UTC()}
	if record, ok := s.Nodes.Get(n); ok {
		gone.Record = record.ModRev
	}
	return store.ReplaceOn(lease, key, gone, earlier.ModRev), nil
}

func holdsAnything(s *view.Snapshot, n fleet.NodeID) bool {
	for i := range s.NodeInstances(n) {
		if i.HoldsNode() {
			return true
		}
	}
	for range strays(s, n) {
		return true
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
	for part, r := range s.ReportPartsOn(n) {
		t.Writes = append(t.Writes, store.Remove(store.ReportPartKey(n, part), r.ModRev))
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
