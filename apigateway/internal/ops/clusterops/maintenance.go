package clusterops

import (
	"context"
	"slices"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// SetMaintenance sets the maintenance of all groups. After the commit, the enforcer starts nothing
// that it decided before. change gets the current state and returns the wanted one. Invalid names
// every wrong field, MovedError when ifMatch is not 0 and not the record's revision. It writes
// nothing when nothing changes, or with dryRun.
func (o *Cluster) SetMaintenance(ctx context.Context, by txn.Actor, change func(fleet.Maintenance) fleet.Maintenance, ifMatch int64, dryRun bool) (out cluster.Maintenance, err error) {
	_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		before := s.Maintenance()
		if err := txn.CheckRevision("maintenance", ifMatch, before.ModRev); err != nil {
			return txn.Change{}, err
		}
		out = before
		out.Maintenance = change(before.Maintenance)
		if err := txn.JoinProblems(out.Validate("message", "bypass")); err != nil {
			return txn.Change{}, err
		}
		if sameMaintenance(before.Maintenance, out.Maintenance) {
			return txn.Change{}, nil
		}
		if out.By, out.At = by.User, o.Now(); dryRun {
			return txn.Change{}, nil
		}
		return txn.Change{
			Writes: []store.Write{store.Replace(keys.Maintenance(), out, before.ModRev)},
			Audit:  txn.Entry{Action: "maintenance.update", Resource: "maintenance", ID: "cluster", Before: before.Maintenance, After: out.Maintenance},
		}, nil
	})
	if err == nil && !dryRun {
		out = o.Snapshot().Maintenance()
	}
	return out, err
}

func sameMaintenance(a, b fleet.Maintenance) bool {
	return a.On == b.On && a.Message == b.Message && slices.Equal(a.Bypass, b.Bypass)
}
