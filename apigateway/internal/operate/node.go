package operate

import (
	"cmp"
	"context"
	"slices"
	"time"

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

// Uncordon lets a node take instances again. Errors as of Cordon, and Conflict while it is revoked.
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
		revoked, known := s.RevokedNodes.Get(node)
		if !on && known && revoked.Holds(o.now()) {
			return change{}, errs.New(errs.Conflict, "node %s is revoked until %s: unrevoke it first", node, revoked.Until.Format(time.RFC3339))
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
		switch {
		case on:
			c.audit.action = "node.cordon"
			c.writes = append(c.writes, outdate(node))
		case known: // for a time that is over
			c.guards = append(c.guards, store.Unchanged(store.RevokedNodeKey(node), revoked.ModRev))
		default:
			c.guards = append(c.guards, store.Missing(store.RevokedNodeKey(node)))
		}
		return c, nil
	})
}

// outdate touches what every placement on a node compares: one that was decided
// from the state before, and is under way, is refused.
func outdate(node fleet.NodeID) store.Write {
	return store.Touch(store.AllocKey(node), fleet.Alloc{Node: node})
}

// NodeDelete asks for a node to be given up.
type NodeDelete struct {
	Node fleet.NodeID
	// IfMatch is the revision the node must be at, see NodeRevision; 0 accepts any.
	IfMatch int64
	// DiscardData also deletes a node that has data of static instances.
	DiscardData bool
	// DryRun decides everything and writes nothing. The node's data is no error then.
	DryRun bool
}

// DeleteNode gives up a node that has no session: what its instances hold is free,
// and another host may take the id. A node of which nothing is left but what is placed on
// it may be deleted, too. It returns the data on the node. NotFound when there is
// no such node, MovedError when IfMatch does not hold, Conflict while its agent is
// connected, and for data on it unless DiscardData is set. Deleting twice changes nothing.
func (o *Operations) DeleteNode(ctx context.Context, by Actor, d NodeDelete) (data []StaticData, err error) {
	node := d.Node
	_, err = o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
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
		if err := unmoved("node "+string(node), d.IfMatch, at); err != nil {
			return change{}, err
		}
		if _, alive := s.NodeSessions.Get(node); alive {
			return change{}, errs.New(errs.Conflict, "node %s is connected: stop its agent first", node)
		}
		data = DataOn(s, node)
		switch {
		case next.Deleted, d.DryRun:
			return change{}, nil
		case len(data) > 0 && !d.DiscardData:
			return change{}, hasData(s, node, data)
		}
		rev, before := next.ModRev, nodeRecord(next)
		next.Deleted, next.By, next.At = true, by.User, o.now()
		return change{
			guards: []store.Guard{store.Missing(store.NodeSessionKey(node))},
			writes: []store.Write{store.Replace(store.NodeDesiredKey(node), next, rev)},
			audit: entry{
				action: "node.delete", resource: "node", id: string(node), details: discarded(data), before: before, after: nodeRecord(next),
			},
		}, nil
	})
	return data, err
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

// maxLeft bounds the instances that are named where there may be many.
const maxLeft = 100

// Left are instances on a node: how many, and the first hundred in order of name.
type Left struct {
	Count int
	IDs   []fleet.InstanceID
}

// LeftOn are the instances that hold room on a node: as far as is known, they run there.
func LeftOn(s *view.Snapshot, node fleet.NodeID) Left {
	var all []*fleet.Instance
	for i := range s.NodeInstances(node) {
		if i.HoldsNode() {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(a, b *fleet.Instance) int {
		return cmp.Or(cmp.Compare(a.Intent.Name, b.Intent.Name), cmp.Compare(a.Intent.ID, b.Intent.ID))
	})
	out := Left{Count: len(all), IDs: []fleet.InstanceID{}}
	for _, i := range all[:min(len(all), maxLeft)] {
		out.IDs = append(out.IDs, i.Intent.ID)
	}
	return out
}
