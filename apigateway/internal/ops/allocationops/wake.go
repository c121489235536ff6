package allocationops

import (
	"context"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// wakeOne wakes a sleeping instance for a request that no other instance has room for, and returns
// Unavailable, so that the client retries. It returns refusal if none sleeps.
func (o *Allocations) wakeOne(ctx context.Context, by txn.Actor, r *Request, refusal error) error {
	var woken *fleet.Instance
	_, err := o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		var coming bool
		if woken, coming = newBook(s).sleeper(r); woken == nil || coming {
			return txn.Change{}, nil
		}
		next := woken.Intent.Awake(by.User, "woken for an allocation by "+by.User)
		return txn.Change{
			Writes: []store.Write{store.Replace(keys.Intent(next.ID), next, woken.Intent.ModRev)},
			Audit:  txn.Entry{Action: "instance.wake", Resource: "instance", ID: string(next.ID), Details: next.Name},
		}, nil
	})
	switch {
	case err != nil:
		return err
	case woken == nil:
		return refusal
	}
	return errs.New(errs.Unavailable, "%s: a sleeping instance of the group wakes: retry in a moment", errs.MessageOf(refusal))
}

// sleeper returns the oldest sleeping instance that has enough slots for a request, by the first
// selector that has one. coming is true if an instance of the groups is about to be ready, so that none
// needs to wake.
func (b *book) sleeper(r *Request) (oldest *fleet.Instance, coming bool) {
	for n := range r.Selectors {
		for g := range b.groups(r, n) {
			if b.snap.MaintenanceOf(g).On {
				continue
			}
			for i := range b.snap.GroupInstances(g.Name) {
				switch capacity := b.planned(i); {
				case i.Terminal() || i.Retiring() || i.Intent.Desired != fleet.DesiredRunning || i.State() == fleet.Online || capacity > 0 && capacity < r.Slots:
				case i.State() != fleet.Sleeping || i.Intent.Sleep == nil:
					coming = true
				case oldest == nil || i.Intent.CreateRev < oldest.Intent.CreateRev:
					oldest = i
				}
			}
		}
		if oldest != nil {
			return oldest, coming
		}
	}
	return nil, coming
}
