package controller

import (
	"context"
	"errors"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// A node's own records belong to the owner of the shard that its ID hashes to, as if the ID
// were a group name.

// removeNodes deletes the records of deleted nodes that hold nothing any more.
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

// remembering returns a write that records the deletion of a node, and replaces the record
// of an earlier deletion.
func (c *Controller) remembering(ctx context.Context, s *view.Snapshot, n fleet.NodeID, by string) (store.Write, error) {
	key := keys.DeletedNode(n)
	earlier, err := store.Get(ctx, c.store, key)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return store.Write{}, errs.Wrap("enforcer.remembering", err)
	}
	lease, err := c.store.Grant(ctx, cluster.DeletedNodeFor)
	if err != nil {
		return store.Write{}, errs.Wrap("enforcer.remembering", err)
	}
	gone := cluster.DeletedNode{Node: n, By: by, At: c.wall().UTC()}
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

// removal returns the transaction that deletes a node's records, provided that the node has
// not come back.
func removal(s *view.Snapshot, n fleet.NodeID, fence store.Fence) store.Txn {
	t := store.Txn{Fences: []store.Fence{fence}, Guards: []store.Guard{store.Missing(keys.NodeSession(n))}}
	if r, ok := s.Nodes.Get(n); ok {
		t.Writes = append(t.Writes, store.Remove(keys.Node(n), r.ModRev))
	}
	if r, ok := s.NodesDesired.Get(n); ok {
		t.Writes = append(t.Writes, store.Remove(keys.NodeDesired(n), r.ModRev))
	}
	if r, ok := s.Reports.Get(n); ok {
		t.Writes = append(t.Writes, store.Remove(keys.Report(n), r.ModRev))
	}
	for part, r := range s.ReportPartsOn(n) {
		t.Writes = append(t.Writes, store.Remove(keys.ReportPart(n, part), r.ModRev))
	}
	for part, r := range s.PlayersOn(n) {
		t.Writes = append(t.Writes, store.Remove(keys.Players(n, part), r.ModRev))
	}
	if r, ok := s.Allocs.Get(n); ok { // a concurrent placement compares it
		t.Writes = append(t.Writes, store.Remove(keys.Alloc(n), r.ModRev))
	} else { // so does a concurrent first placement
		t.Guards = append(t.Guards, store.Missing(keys.Alloc(n)))
	}
	return t
}
