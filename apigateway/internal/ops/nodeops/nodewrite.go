package nodeops

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// NodeWishes are settings of an operator that override the settings of a node's agent. nil keeps
// the agent's.
type NodeWishes struct {
	Labels map[string]string
	Room   *fleet.NodeRoom
}

// NodeWrite changes the wishes for a node.
type NodeWrite struct {
	Node fleet.NodeID
	// IfMatch is the revision the node must be at, see NodeRevision; 0 accepts any.
	IfMatch int64
	// DryRun computes the result and writes nothing.
	DryRun bool
	// Make returns the desired wishes for the present ones. It may be called more than once and must
	// not modify its argument.
	Make func(n *fleet.Node, present NodeWishes) (NodeWishes, error)
}

// NodeRevision returns the higher revision of a node's record and its desired state.
func NodeRevision(s *view.Snapshot, n *fleet.Node) int64 {
	if d, ok := s.NodesDesired.Get(n.ID); ok {
		return max(n.ModRev, d.ModRev)
	}
	return n.ModRev
}

// maxLabels bounds a node's labels.
const maxLabels = 256

// WriteNode changes the wishes for a node, and returns those before and after. After the commit,
// placements decided before it fail. NotFound when the node does not exist, Conflict while it is
// being deleted, Invalid names every wrong field, MovedError when IfMatch does not match. It writes
// nothing when nothing changes.
func (o *Nodes) WriteNode(ctx context.Context, by txn.Actor, w NodeWrite) (before, after NodeWishes, err error) {
	_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		n, ok := s.Nodes.Get(w.Node)
		if !ok {
			return txn.Change{}, errs.New(errs.NotFound, "there is no node %s", txn.Clip(string(w.Node)))
		}
		if err := txn.CheckRevision("node "+string(w.Node), w.IfMatch, NodeRevision(s, n)); err != nil {
			return txn.Change{}, err
		}
		next := fleet.NodeDesired{Node: w.Node}
		if have, ok := s.NodesDesired.Get(w.Node); ok {
			next = *have
		}
		if next.Deleted {
			return txn.Change{}, errs.New(errs.Conflict, "node %s is being deleted", w.Node)
		}
		before = NodeWishes{Labels: next.Labels, Room: next.Room}
		if after, err = w.Make(n, before); err != nil {
			return txn.Change{}, err
		}
		if err := txn.JoinProblems(nodeProblems(n.LabelsUnder(&next), after)); err != nil || w.DryRun {
			return txn.Change{}, err
		}
		return o.nodeChange(n, next, after, by.User), nil
	})
	return before, after, err
}

// nodeProblems returns the problems of wishes. It ignores labels that exist already: an agent's own
// labels must not block other changes.
func nodeProblems(present map[string]string, w NodeWishes) []error {
	given := map[string]string{}
	for k, v := range w.Labels {
		if have, ok := present[k]; !ok || have != v {
			given[k] = v
		}
	}
	problems := fleet.ValidateLabels("labels", given)
	if len(w.Labels) > maxLabels && len(given) > 0 {
		problems = append(problems, errs.Field("labels", "must have at most %d entries", maxLabels))
	}
	if w.Room != nil {
		for _, err := range w.Room.Validate() {
			problems = append(problems, errs.Field("room."+errs.FieldOf(err), "%s", errs.MessageOf(err)))
		}
	}
	return problems
}

// nodeChange returns the change that writes the wishes, if they differ from next. It makes earlier
// placements fail, and fails itself when the node changed meanwhile.
func (o *Nodes) nodeChange(n *fleet.Node, next fleet.NodeDesired, wishes NodeWishes, by string) txn.Change {
	said := map[string]any{}
	if !sameLabels(next.Labels, wishes.Labels) {
		said["labels"] = wishes.Labels
	}
	if !sameRoom(next.Room, wishes.Room) {
		said["room"] = wishes.Room
	}
	if len(said) == 0 {
		return txn.Change{}
	}
	details, err := json.Marshal(said)
	if err != nil { // unreachable: labels are strings, and the room was decoded from JSON
		details = nil
	}
	rev, before := next.ModRev, NodeRecord(next)
	next.Labels, next.Room, next.By, next.At = wishes.Labels, wishes.Room, by, o.Now()
	return txn.Change{
		Guards: []store.Guard{store.Unchanged(keys.Node(n.ID), n.ModRev)},
		Writes: []store.Write{store.Replace(keys.NodeDesired(n.ID), next, rev), outdate(n.ID)},
		Audit:  txn.Entry{Action: "node.update", Resource: "node", ID: string(n.ID), Details: string(details), Before: before, After: NodeRecord(next)},
	}
}

// sameLabels compares labels. nil differs from an empty map.
func sameLabels(a, b map[string]string) bool { return (a == nil) == (b == nil) && maps.Equal(a, b) }

func sameRoom(a, b *fleet.NodeRoom) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
