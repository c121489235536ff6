package nodeops

import (
	"context"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// RevokeNode cordons a node and shuts it out for the time life: proxies refuse its calls, and it cannot
// return after its present session. Its instances continue to run, but their tokens are refused for that time,
// because the host is not trusted any more. A node without a record can be revoked too: its host may have
// joined and not reported yet, or was deleted and still has a certificate. With dryRun it only checks.
// Invalid when the id is not one.
func (o *Nodes) RevokeNode(ctx context.Context, by txn.Actor, node fleet.NodeID, life time.Duration, dryRun bool) (rev int64, err error) {
	if err := node.Validate(); err != nil {
		return 0, err
	}
	return o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		if dryRun {
			return txn.Change{}, nil
		}
		now := o.Now()
		next := cluster.RevokedNode{Node: node, Until: now.Add(life), By: by.User, At: now}
		c := txn.Change{Audit: txn.Entry{Action: "node.revoke", Resource: "node", ID: string(node), Details: "until " + next.Until.Format(time.RFC3339)}}
		var rev int64
		if have, ok := s.RevokedNodes.Get(node); ok {
			rev = have.ModRev
		}
		c.Writes = append(c.Writes, store.Replace(keys.RevokedNode(node), next, rev))
		wishes := fleet.NodeDesired{Node: node}
		if have, ok := s.NodesDesired.Get(node); ok {
			wishes = *have
		}
		_, known := s.Nodes.Get(node)
		switch {
		case !known:
		case wishes.Cordoned:
			c.Guards = append(c.Guards, store.Unchanged(keys.NodeDesired(node), wishes.ModRev))
		default:
			c.Audit.Before = NodeRecord(wishes)
			rev := wishes.ModRev
			wishes.Cordoned, wishes.By, wishes.At = true, by.User, now
			c.Audit.After = NodeRecord(wishes)
			c.Writes = append(c.Writes, store.Replace(keys.NodeDesired(node), wishes, rev), outdate(node))
		}
		return c, nil
	})
}

// UnrevokeNode allows a node to join again; it stays cordoned. It changes nothing for a node that
// is not revoked. NotFound when there is no such node and no revocation.
func (o *Nodes) UnrevokeNode(ctx context.Context, by txn.Actor, node fleet.NodeID) (rev int64, err error) {
	return o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		have, barred := s.RevokedNodes.Get(node)
		if _, known := s.Nodes.Get(node); !known && !barred {
			return txn.Change{}, errs.New(errs.NotFound, "there is no node %s", txn.Clip(string(node)))
		}
		if !barred {
			return txn.Change{}, nil
		}
		return txn.Change{
			Writes: []store.Write{store.Remove(keys.RevokedNode(node), have.ModRev)},
			Audit:  txn.Entry{Action: "node.unrevoke", Resource: "node", ID: string(node)},
		}, nil
	})
}

// PruneRevokedNodes removes expired revocations.
func (o *Nodes) PruneRevokedNodes(ctx context.Context) error {
	for node, r := range o.Snapshot().RevokedNodes.All() {
		if r.Holds(o.Now()) {
			continue
		}
		_, err := o.Store.Commit(ctx, store.Txn{Writes: []store.Write{store.Remove(keys.RevokedNode(node), r.ModRev)}})
		if err != nil && !errs.Is(err, errs.Conflict) {
			return errs.Wrap("operate.PruneRevokedNodes", err)
		}
	}
	return nil
}
