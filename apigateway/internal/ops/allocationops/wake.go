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
	// The request is refused, so its Idempotency-Key stays unused.
	_, err := o.Mutate(txn.WithoutOnce(ctx), by, func(s *view.Snapshot) (txn.Change, error) {
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
				case i.Retiring() || i.Intent.Warm || i.Intent.Standby || i.Intent.Desired != fleet.DesiredRunning || capacity > 0 && capacity < r.Slots:
				case comes(i):
					coming = true
				case i.State() != fleet.Sleeping:
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

// comes reports whether an instance is about to be ready, or to sleep. One that waits for a node may
// wait for ever, so it does not count once the scheduler has found none for it.
func comes(i *fleet.Instance) bool {
	switch i.State() {
	case fleet.Preparing, fleet.Starting:
		return true
	case fleet.Stopping:
		return i.Intent.Sleep != nil
	case fleet.Sleeping:
		return i.Intent.Sleep == nil
	case fleet.Unplaced:
		return i.Waking() && (i.Pending == nil || i.Pending.Generation != i.Intent.Generation)
	case fleet.Online, fleet.Stopped, fleet.Crashed, fleet.Failed, fleet.Offline:
	}
	return false
}
