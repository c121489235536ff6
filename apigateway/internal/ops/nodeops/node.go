// Package nodeops cordons, drains, labels, shuts down, revokes and deletes nodes, and issues join tokens.
package nodeops

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops/moveops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Nodes changes nodes and join tokens. It is safe for concurrent use.
type Nodes struct {
	*txn.Committer
	agents *upstream.Agents
	moves  *moveops.Moves
}

// New returns the operations on nodes.
func New(c *txn.Committer, agents *upstream.Agents, moves *moveops.Moves) *Nodes {
	return &Nodes{Committer: c, agents: agents, moves: moves}
}

// Cordon keeps new instances off a node; running ones continue. After the commit, placements
// decided before it fail. NotFound when the node does not exist. Cordoning a cordoned node changes
// nothing.
func (o *Nodes) Cordon(ctx context.Context, by txn.Actor, node fleet.NodeID) (changed bool, rev int64, err error) {
	return o.setCordon(ctx, by, node, true, false)
}

// Uncordon allows new instances on a node again. It also ends a complete drain, so that the
// instances that were stopped for it start again. Errors are those of Cordon, and Conflict while the
// node is revoked or being drained.
func (o *Nodes) Uncordon(ctx context.Context, by txn.Actor, node fleet.NodeID) (changed bool, rev int64, err error) {
	return o.setCordon(ctx, by, node, false, false)
}

func (o *Nodes) setCordon(ctx context.Context, by txn.Actor, node fleet.NodeID, on, dryRun bool) (changed bool, rev int64, err error) {
	rev, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		changed = false
		if _, ok := s.Nodes.Get(node); !ok {
			return txn.Change{}, errs.New(errs.NotFound, "there is no node %s", txn.Clip(string(node)))
		}
		next := fleet.NodeDesired{Node: node}
		if have, ok := s.NodesDesired.Get(node); ok {
			next = *have
		}
		revoked, known := s.RevokedNodes.Get(node)
		if !on && known && revoked.Holds(o.Now()) {
			return txn.Change{}, errs.New(errs.Conflict, "node %s is revoked until %s: unrevoke it first", node, revoked.Until.Format(time.RFC3339))
		}
		if !on && next.Draining() != nil {
			return txn.Change{}, errs.New(errs.Conflict, "node %s is being drained: undrain it instead", node)
		}
		if changed = next.Cordoned != on || !on && next.Drain != nil; !changed || dryRun {
			return txn.Change{}, nil
		}
		rev, before := next.ModRev, NodeRecord(next)
		next.Cordoned, next.By, next.At = on, by.User, o.Now()
		if !on {
			next.Drain = nil
		}
		c := txn.Change{
			Writes: []store.Write{store.Replace(keys.NodeDesired(node), next, rev)},
			Audit:  txn.Entry{Action: "node.uncordon", Resource: "node", ID: string(node), Before: before, After: NodeRecord(next)},
		}
		switch {
		case on:
			c.Audit.Action = "node.cordon"
			c.Writes = append(c.Writes, outdate(node))
		case known: // a revocation that has expired
			c.Guards = append(c.Guards, store.Unchanged(keys.RevokedNode(node), revoked.ModRev))
		default:
			c.Guards = append(c.Guards, store.Missing(keys.RevokedNode(node)))
		}
		return c, nil
	})
	return changed, rev, err
}

// outdate touches the record that placements on a node compare, so that placements decided before
// fail.
func outdate(node fleet.NodeID) store.Write {
	return store.Touch(keys.Alloc(node), fleet.Alloc{Node: node})
}

// NodeDelete asks to delete a node.
type NodeDelete struct {
	Node fleet.NodeID
	// IfMatch is the revision the node must be at, see NodeRevision; 0 accepts any.
	IfMatch int64
	// DiscardData also deletes a node that has data of static instances.
	DiscardData bool
	// DryRun computes the result and writes nothing. The node's data is no error then.
	DryRun bool
}

// DeleteNode deletes a node without a session. The resources of its instances become free, and
// another host may take its id. It also deletes a node that has no record but placements, and
// returns the static data on the node. NotFound when the node does not exist, MovedError when
// IfMatch does not match, Conflict while its agent is connected, and when it has data and
// DiscardData is false. Deleting twice changes nothing.
func (o *Nodes) DeleteNode(ctx context.Context, by txn.Actor, d NodeDelete) (data []StaticData, err error) {
	node := d.Node
	_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		n, ok := s.Nodes.Get(node)
		if !ok && !named(s, node) {
			return txn.Change{}, errs.New(errs.NotFound, "there is no node %s", txn.Clip(string(node)))
		}
		next := fleet.NodeDesired{Node: node}
		if have, ok := s.NodesDesired.Get(node); ok {
			next = *have
		}
		at := next.ModRev
		if n != nil {
			at = NodeRevision(s, n)
		}
		if err := txn.CheckRevision("node "+string(node), d.IfMatch, at); err != nil {
			return txn.Change{}, err
		}
		if _, alive := s.NodeSessions.Get(node); alive {
			return txn.Change{}, errs.New(errs.Conflict, "node %s is connected: stop its agent first", node)
		}
		data = DataOn(s, node)
		switch {
		case next.Deleted, d.DryRun:
			return txn.Change{}, nil
		case len(data) > 0 && !d.DiscardData:
			return txn.Change{}, hasData(s, node, data)
		}
		rev, before := next.ModRev, NodeRecord(next)
		next.Deleted, next.By, next.At = true, by.User, o.Now()
		return txn.Change{
			Guards: []store.Guard{store.Missing(keys.NodeSession(node))},
			Writes: []store.Write{store.Replace(keys.NodeDesired(node), next, rev)},
			Audit: txn.Entry{
				Action: "node.delete", Resource: "node", ID: string(node), Details: discarded(data), Before: before, After: NodeRecord(next),
			},
		}, nil
	})
	return data, err
}

// named reports whether an instance is placed on a node.
func named(s *view.Snapshot, node fleet.NodeID) bool {
	for i := range s.NodeInstances(node) {
		if i.HoldsNode() {
			return true
		}
	}
	return false
}

// maxLeft bounds the instances that Left lists.
const maxLeft = 100

// Left are instances on a node: how many, and the first hundred in order of name.
type Left struct {
	Count int
	IDs   []fleet.InstanceID
}

// LeftOn returns the instances that are placed on a node.
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

// NodeRecord is what the audit keeps of the desired state of a node.
func NodeRecord(d fleet.NodeDesired) any {
	return struct {
		Cordoned bool              `json:"cordoned"`
		Drain    *fleet.NodeDrain  `json:"drain,omitempty"`
		Deleted  bool              `json:"deleted,omitempty"`
		Labels   map[string]string `json:"labels,omitzero"`
		Room     *fleet.NodeRoom   `json:"room,omitempty"`
	}{d.Cordoned, d.Drain, d.Deleted, d.Labels, d.Room}
}
