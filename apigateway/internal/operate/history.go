package operate

import (
	"context"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// KeepAudit is the number of audit entries kept.
const KeepAudit = 10_000

// Audit are the audit entries, newest first.
func (o *Operations) Audit(ctx context.Context) (all []fleet.AuditEntry, err error) {
	err = InTime(ctx, func(ctx context.Context) error {
		all, _, err = store.List(ctx, o.cfg.Store, store.AuditLog())
		return err
	})
	if err != nil {
		return nil, errs.Wrap("operate.Audit", err)
	}
	slices.Reverse(all) // ids are in order of time
	return all, nil
}

// PruneAudit removes the oldest entries past keep. Replicas that prune at once
// remove the same ones; who comes second leaves the rest to the next time.
func (o *Operations) PruneAudit(ctx context.Context, keep int) error {
	all, _, err := store.List(ctx, o.cfg.Store, store.AuditLog())
	if err != nil {
		return errs.Wrap("operate.PruneAudit", err)
	}
	for batch := range slices.Chunk(all[:max(0, len(all)-keep)], o.cfg.Store.MaxOps()) {
		var t store.Txn
		for _, e := range batch {
			t.Writes = append(t.Writes, store.Remove(store.AuditKey(e.ID), e.ModRev))
		}
		switch _, err := o.cfg.Store.Commit(ctx, t); {
		case errs.Is(err, errs.Conflict):
			return nil
		case err != nil:
			return errs.Wrap("operate.PruneAudit", err)
		}
	}
	return nil
}
