package etcdproxy

import (
	"context"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// viewFacts are the Facts of a view. They read etcd only for an instance that the view does not show on the
// node.
type viewFacts struct {
	store    *store.Client
	snapshot func() *view.Snapshot
	// node is the node whose rights are checked.
	node fleet.NodeID
}

// Seen implements Facts.
func (f viewFacts) Seen(id fleet.InstanceID) (p Place) {
	s := f.snapshot()
	i, ok := s.Instances.Get(id)
	if !ok {
		i, ok = s.Orphans.Get(id)
	}
	if ok && i.Status != nil {
		p.Reported, p.ReportedGeneration, p.Group = i.Status.Node, i.Status.Generation, i.Status.Group
	}
	if ok && i.Placement != nil {
		p.Placed, p.PlacedGeneration, p.Group = i.Placement.Node, i.Placement.Generation, i.Placement.Group
	}
	return p
}

// PlaceOf implements Facts.
func (f viewFacts) PlaceOf(ctx context.Context, id fleet.InstanceID, generation int64) (Place, error) {
	p := f.Seen(id)
	if p.generation(f.node) >= generation {
		return p, nil
	}
	// The node may have seen the placement before this view.
	placement, err := store.Get(ctx, f.store, keys.Placement(f.node, id))
	switch {
	case err == nil:
		p.Placed, p.PlacedGeneration, p.Group = f.node, placement.Generation, placement.Group
	case !errs.Is(err, errs.NotFound):
		return p, err
	}
	return p, nil
}

// MoveTarget implements Facts.
func (f viewFacts) MoveTarget(ctx context.Context, id fleet.InstanceID) (fleet.NodeID, error) {
	m, err := store.Get(ctx, f.store, keys.Move(id))
	if errs.Is(err, errs.NotFound) {
		return "", nil
	}
	return m.Target, err
}
