package operate

import (
	"context"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Cordon keeps new instances off a node; what runs there runs on. Once it is
// committed, nothing that was decided before is placed there. NotFound when there is
// no such node. Cordoning a cordoned node changes nothing.
func (o *Operations) Cordon(ctx context.Context, by Actor, node fleet.NodeID) (int64, error) {
	return o.setCordon(ctx, by, node, true)
}

// Uncordon lets a node take instances again. Errors as of Cordon.
func (o *Operations) Uncordon(ctx context.Context, by Actor, node fleet.NodeID) (int64, error) {
	return o.setCordon(ctx, by, node, false)
}

func (o *Operations) setCordon(ctx context.Context, by Actor, node fleet.NodeID, on bool) (int64, error) {
	return o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		if _, ok := s.Nodes.Get(node); !ok {
			return change{}, errs.New(errs.NotFound, "there is no node %s", clip(string(node)))
		}
		next := fleet.NodeDesired{Node: node}
		if have, ok := s.NodesDesired.Get(node); ok {
			next = *have
		}
		if next.Cordoned == on {
			return change{}, nil
		}
		rev, before := next.ModRev, nodeRecord(next)
		next.Cordoned, next.By, next.At = on, by.User, o.now()
		c := change{
			writes: []store.Write{store.Replace(store.NodeDesiredKey(node), next, rev)},
			audit:  entry{action: "node.uncordon", resource: "node", id: string(node), before: before, after: nodeRecord(next)},
		}
		if on {
			c.audit.action = "node.cordon"
			c.writes = append(c.writes, outdate(node))
		}
		return c, nil
	})
}

// outdate touches what every placement on a node compares: one that was decided
// from the state before, and is under way, is refused.
func outdate(node fleet.NodeID) store.Write {
	return store.Touch(store.AllocKey(node), fleet.Alloc{Node: node})
}

// DeleteNode gives up a node that has no session: what its instances hold is free,
// static ones may be placed elsewhere, and another host may take the id. A node of which
// nothing is left but what is placed on it may be deleted, too. NotFound when there is
// no such node, MovedError when ifMatch, if it is not 0, does not hold (see NodeRevision),
// Conflict while its agent is connected. Deleting twice changes nothing.
func (o *Operations) DeleteNode(ctx context.Context, by Actor, node fleet.NodeID, ifMatch int64) (int64, error) {
	return o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		n, ok := s.Nodes.Get(node)
		if !ok && !named(s, node) {
			return change{}, errs.New(errs.NotFound, "there is no node %s", clip(string(node)))
		}
		next := fleet.NodeDesired{Node: node}
		if have, ok := s.NodesDesired.Get(node); ok {
			next = *have
		}
		at := next.ModRev
		if n != nil {
			at = NodeRevision(s, n)
		}
		if err := unmoved("node "+string(node), ifMatch, at); err != nil {
			return change{}, err
		}
		if _, alive := s.NodeSessions.Get(node); alive {
			return change{}, errs.New(errs.Conflict, "node %s is connected: stop its agent first", node)
		}
		if next.Deleted {
			return change{}, nil
		}
		rev, before := next.ModRev, nodeRecord(next)
		next.Deleted, next.By, next.At = true, by.User, o.now()
		return change{
			guards: []store.Guard{store.Missing(store.NodeSessionKey(node))},
			writes: []store.Write{store.Replace(store.NodeDesiredKey(node), next, rev)},
			audit:  entry{action: "node.delete", resource: "node", id: string(node), before: before, after: nodeRecord(next)},
		}, nil
	})
}

// named reports whether an instance holds room on a node.
func named(s *view.Snapshot, node fleet.NodeID) bool {
	for i := range s.NodeInstances(node) {
		if i.HoldsNode() {
			return true
		}
	}
	return false
}
