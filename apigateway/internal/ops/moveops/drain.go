package moveops

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/client"
)

// Targets returns where the static instances on a node would move if it were drained now, as far as the
// scheduler knows them. Nodes in also take none. Unavailable when no scheduler answers.
func (o *Moves) Targets(ctx context.Context, node fleet.NodeID, also []fleet.NodeID) (map[fleet.InstanceID]Target, error) {
	got, _, err := o.simulate(ctx, client.Question{Drain: &client.DrainQuestion{Node: node, MoveStatic: true, Also: also}})
	if err != nil {
		return nil, err
	}
	why := map[fleet.GroupName]string{}
	for _, u := range got.Unfit {
		why[u.Group] = u.Message
	}
	s, out := o.Snapshot(), map[fleet.InstanceID]Target{}
	for _, g := range got.Instances {
		i, ok := s.Instances.Get(g.Instance)
		if !ok {
			continue
		}
		t := Target{Node: g.Node}
		if t.Node == "" {
			t.Why = nowhere(g.Name, why[g.Group])
		} else {
			t.Why = receives(s, i, t.Node)
		}
		out[g.Instance] = t
	}
	return out, nil
}

// MoveForDrain begins the move of an instance that has ended, for the drain of its node. If it cannot
// move, its move is recorded as failed, so that the drain does not wait for it. Nothing happens if the
// drain was ended meanwhile. Unavailable when no scheduler answers that knows all moves.
func (o *Moves) MoveForDrain(ctx context.Context, node fleet.NodeID, d fleet.NodeDrain, id fleet.InstanceID) error {
	s := o.Snapshot()
	i, ok := s.Instances.Get(id)
	if !ok || !due(s, node, d, i) {
		return nil
	}
	var target Target
	if movable(s, i) == nil {
		var err error
		switch target, err = o.choose(ctx, i, ""); {
		case errs.Is(err, errs.NotFound): // the scheduler does not know the instance any more, or not yet
			return errs.New(errs.Unavailable, "%s", errs.MessageOf(err))
		case err != nil:
			return err
		case target.revision < latest(s):
			return errs.New(errs.Unavailable, "the scheduler does not know the latest moves yet")
		}
	}
	by := txn.Actor{User: d.By}
	_, err := o.MutateGroup(ctx, by, i.Intent.Group, func(s *view.Snapshot) (txn.Change, error) {
		i, ok := s.Instances.Get(id)
		if !ok || !due(s, node, d, i) {
			return txn.Change{}, nil
		}
		why := movable(s, i)
		if why == nil {
			why = target.Why
		}
		if why == nil && target.Node == "" {
			return txn.Change{}, errs.New(errs.Unavailable, "instance %s has changed while its move was prepared", i.Intent.Name)
		}
		if why == nil {
			why = receives(s, i, target.Node)
		}
		wishes, _ := s.NodesDesired.Get(node)
		change := txn.Change{}
		if why != nil {
			change = refused(s, i, o.failed(i, d, why))
		} else {
			m := o.plan(s, i, target.Node, by, Request{}).Move
			m.Drain = d.ID
			change = begin(s, i, m)
		}
		change.Guards = append(change.Guards, store.Unchanged(keys.NodeDesired(node), wishes.ModRev))
		return change, nil
	})
	return err
}

// due reports whether a drain still has to move an instance.
func due(s *view.Snapshot, node fleet.NodeID, d fleet.NodeDrain, i *fleet.Instance) bool {
	wishes, _ := s.NodesDesired.Get(node)
	now := wishes.Draining()
	m, _ := s.Move(i.Intent.ID)
	return now != nil && now.ID == d.ID && i.Node() == node && !i.HoldsNode() && i.Moved() == nil && !m.Active() && (m == nil || m.Drain != d.ID)
}

// latest returns the revision of the latest change of a move that is not over.
func latest(s *view.Snapshot) (rev int64) {
	for _, m := range s.Moves().All() {
		if m.Active() {
			rev = max(rev, m.ModRev)
		}
	}
	return rev
}

// failed returns the record of a move that could not begin. It has no target.
func (o *Moves) failed(i *fleet.Instance, d fleet.NodeDrain, why error) *move.Move {
	at := o.Now()
	m := &move.Move{
		ID: strings.ToLower(ulid.Make().String()), Instance: i.Intent.ID, Name: i.Intent.Name, Group: i.Intent.Group, Source: i.Node(),
		Generation: i.LastGeneration(), By: d.By, At: at, Drain: d.ID, Step: move.Failed, StepAt: at, Reason: fleet.ReasonNoNodeFits, Detail: errs.MessageOf(why),
	}
	if i.Placement != nil {
		m.SourceUUID = i.Placement.DataUUID
	}
	return m
}

func refused(s *view.Snapshot, i *fleet.Instance, m *move.Move) txn.Change {
	return txn.Change{
		Guards: []store.Guard{store.Unchanged(keys.Intent(i.Intent.ID), i.Intent.ModRev)},
		Writes: []store.Write{store.Replace(keys.Move(i.Intent.ID), *m, revOf(s, i.Intent.ID))},
		Audit:  entry("instance.move", i, nil, m),
	}
}

// OfDrain returns the moves of a drain of a node, in the order in which they began.
func OfDrain(s *view.Snapshot, node fleet.NodeID, drain string) []*move.Move {
	var out []*move.Move
	for _, m := range s.Moves().All() {
		if m.Drain == drain && m.Source == node {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b *move.Move) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID))
	})
	return out
}
