package operate

import (
	"context"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// RevokeNode bars a node from joining for so long, and cordons it: nothing new is placed there,
// and it does not come back once its present session has ended. What runs there runs on, but
// its host is not trusted any more: while the bar holds, the own tokens of instances there are
// refused. dryRun only tells whether it could. NotFound when there is no such node.
func (o *Operations) RevokeNode(ctx context.Context, by Actor, node fleet.NodeID, life time.Duration, dryRun bool) (rev int64, err error) {
	return o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		if _, ok := s.Nodes.Get(node); !ok {
			return change{}, errs.New(errs.NotFound, "there is no node %s", clip(string(node)))
		}
		if dryRun {
			return change{}, nil
		}
		now := o.now()
		next := fleet.RevokedNode{Node: node, Until: now.Add(life), By: by.User, At: now}
		c := change{audit: entry{action: "node.revoke", resource: "node", id: string(node), details: "until " + next.Until.Format(time.RFC3339)}}
		var rev int64
		if have, ok := s.RevokedNodes.Get(node); ok {
			rev = have.ModRev
		}
		c.writes = append(c.writes, store.Replace(store.RevokedNodeKey(node), next, rev))
		wishes := fleet.NodeDesired{Node: node}
		if have, ok := s.NodesDesired.Get(node); ok {
			wishes = *have
		}
		if wishes.Cordoned {
			c.guards = append(c.guards, store.Unchanged(store.NodeDesiredKey(node), wishes.ModRev))
		} else {
			c.audit.before = nodeRecord(wishes)
			rev := wishes.ModRev
			wishes.Cordoned, wishes.By, wishes.At = true, by.User, now
			c.audit.after = nodeRecord(wishes)
			c.writes = append(c.writes, store.Replace(store.NodeDesiredKey(node), wishes, rev), outdate(node))
		}
		return c, nil
	})
}

// UnrevokeNode lets a node join again; it stays cordoned. NotFound when there is neither such a
// node nor a bar of one. For one that is not barred nothing changes.
func (o *Operations) UnrevokeNode(ctx context.Context, by Actor, node fleet.NodeID) (rev int64, err error) {
	return o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		have, barred := s.RevokedNodes.Get(node)
		if _, known := s.Nodes.Get(node); !known && !barred {
			return change{}, errs.New(errs.NotFound, "there is no node %s", clip(string(node)))
		}
		if !barred {
			return change{}, nil
		}
		return change{
			writes: []store.Write{store.Remove(store.RevokedNodeKey(node), have.ModRev)},
			audit:  entry{action: "node.unrevoke", resource: "node", id: string(node)},
		}, nil
	})
}

// PruneRevokedNodes removes the records of nodes that may join again.
func (o *Operations) PruneRevokedNodes(ctx context.Context) error {
	for node, r := range o.Snapshot().RevokedNodes.All() {
		if r.Holds(o.now()) {
			continue
		}
		_, err := o.cfg.Store.Commit(ctx, store.Txn{Writes: []store.Write{store.Remove(store.RevokedNodeKey(node), r.ModRev)}})
		if err != nil && !errs.Is(err, errs.Conflict) {
			return errs.Wrap("operate.PruneRevokedNodes", err)
		}
	}
	return nil
}
