package operate

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// NodeWishes are what an operator may say about a node's use, in place of what the
// agent's settings say. Nil leaves the node's own.
type NodeWishes struct {
	Labels map[string]string
	Room   *fleet.NodeRoom
}

// NodeWrite asks for wishes for a node to be as Make says.
type NodeWrite struct {
	Node fleet.NodeID
	// IfMatch is the revision the node must be at, see NodeRevision; 0 accepts any.
	IfMatch int64
	// DryRun decides everything and writes nothing.
	DryRun bool
	// Make computes the wishes from the present ones. It may be called more than once
	// and must not change what it is given.
	Make func(n *fleet.Node, present NodeWishes) (NodeWishes, error)
}

// NodeRevision is the revision of what is shown of a node: its own record's, or
// that of the wishes for it when they were changed later.
func NodeRevision(s *view.Snapshot, n *fleet.Node) int64 {
	if d, ok := s.NodesDesired.Get(n.ID); ok {
		return max(n.ModRev, d.ModRev)
	}
	return n.ModRev
}

// maxLabels bounds a node's labels.
const maxLabels = 256

// WriteNode changes the wishes for a node, and returns those before and after. Once
// it is committed, nothing that was decided before is placed there. NotFound when
// there is no such node, Conflict while it is being deleted, Invalid names every field
// at fault, MovedError when IfMatch does not hold. Wishes that change nothing write nothing.
func (o *Operations) WriteNode(ctx context.Context, by Actor, w NodeWrite) (before, after NodeWishes, err error) {
	_, err = o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		n, ok := s.Nodes.Get(w.Node)
		if !ok {
			return change{}, errs.New(errs.NotFound, "there is no node %s", clip(string(w.Node)))
		}
		if err := unmoved("node "+string(w.Node), w.IfMatch, NodeRevision(s, n)); err != nil {
			return change{}, err
		}
		next := fleet.NodeDesired{Node: w.Node}
		if have, ok := s.NodesDesired.Get(w.Node); ok {
			next = *have
		}
		if next.Deleted {
			return change{}, errs.New(errs.Conflict, "node %s is being deleted", w.Node)
		}
		before = NodeWishes{Labels: next.Labels, Room: next.Room}
		if after, err = w.Make(n, before); err != nil {
			return change{}, err
		}
		if err := joined(nodeProblems(n.LabelsUnder(&next), after)); err != nil || w.DryRun {
			return change{}, err
		}
		return o.nodeChange(n, next, after, by.User), nil
	})
	return before, after, err
}

// nodeProblems are what is wrong with wishes. Labels that were there are not judged
// again: what an agent calls itself must not block other changes.
func nodeProblems(present map[string]string, w NodeWishes) []error {
	given := map[string]string{}
	for k, v := range w.Labels {
		if have, ok := present[k]; !ok || have != v {
			given[k] = v
		}
	}
	problems := fleet.ValidateNodeLabels(given)
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

// nodeChange writes wishes that differ from those in next, bars what was decided
// before, and demands that the node is still what the wishes were made for.
func (o *Operations) nodeChange(n *fleet.Node, next fleet.NodeDesired, wishes NodeWishes, by string) change {
	said := map[string]any{}
	if !sameLabels(next.Labels, wishes.Labels) {
		said["labels"] = wishes.Labels
	}
	if !sameRoom(next.Room, wishes.Room) {
		said["room"] = wishes.Room
	}
	if len(said) == 0 {
		return change{}
	}
	details, err := json.Marshal(said)
	if err != nil { // labels are text, and the room's numbers came from JSON
		details = nil
	}
	rev, before := next.ModRev, nodeRecord(next)
	next.Labels, next.Room, next.By, next.At = wishes.Labels, wishes.Room, by, o.now()
	return change{
		guards: []store.Guard{store.Unchanged(store.NodeKey(n.ID), n.ModRev)},
		writes: []store.Write{store.Replace(store.NodeDesiredKey(n.ID), next, rev), outdate(n.ID)},
		audit:  entry{action: "node.update", resource: "node", id: string(n.ID), details: string(details), before: before, after: nodeRecord(next)},
	}
}

// sameLabels tells none of one's own from an empty set.
func sameLabels(a, b map[string]string) bool { return (a == nil) == (b == nil) && maps.Equal(a, b) }

func sameRoom(a, b *fleet.NodeRoom) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
