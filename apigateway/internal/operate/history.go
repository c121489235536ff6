package operate

import (
	"context"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// KeepAudit is the number of audit entries kept, keepAuditBytes their size together.
	KeepAudit      = 10_000
	keepAuditBytes = 64 << 20
	// AuditSlack is how many more there may be before the oldest go at once.
	AuditSlack = 500
)

// AuditQuery says which entries of the audit are meant; empty fields bound nothing.
type AuditQuery struct {
	User, Action, ResourceType, ResourceID string
	// Since is when the oldest was made at the earliest; all were made before Until.
	Since, Until time.Time
	// Before is the id of the entry all are older than.
	Before string
}

func (q AuditQuery) wants(e *fleet.AuditSlip) bool {
	is := func(wanted, has string) bool { return wanted == "" || wanted == has }
	return is(q.User, e.Username) && is(q.Action, e.Action) && is(q.ResourceType, e.ResourceType) && is(q.ResourceID, e.ResourceID) &&
		!e.CreatedAt.Before(q.Since) && (q.Until.IsZero() || e.CreatedAt.Before(q.Until))
}

// AuditPage is a part of the audit.
type AuditPage struct {
	Entries []fleet.AuditEntry
	// Total is how many entries are meant, those after Before too.
	Total int
	// More is true when there are older ones.
	More bool
}

// Audit are at most n audit entries, newest first, from the one at from. Of the others
// nothing is read.
func (o *Operations) Audit(ctx context.Context, q AuditQuery, from, n int) (out AuditPage, err error) {
	err = InTime(ctx, func(ctx context.Context) error {
		s, err := o.current(ctx)
		if err != nil {
			return err
		}
		var slips []*fleet.AuditSlip
		passed := 0
		for id, e := range s.Audit.Back() {
			if !q.wants(e) {
				continue
			}
			out.Total++
			if q.Before != "" && id >= q.Before {
				continue
			}
			if passed++; passed > from && len(slips) < n {
				slips = append(slips, e)
			}
		}
		out.More = passed > from+n
		out.Entries, err = o.entries(ctx, slips)
		return err
	})
	return out, errs.Wrap("operate.Audit", err)
}

// Revision is the store's at this moment. Unavailable when etcd does not answer in time.
func (o *Operations) Revision(ctx context.Context) (rev int64, err error) {
	err = InTime(ctx, func(ctx context.Context) error {
		rev, err = o.cfg.Store.Revision(ctx)
		return err
	})
	return rev, err
}

// current is the fleet as it is now or later, whichever gateway changed it.
func (o *Operations) current(ctx context.Context) (*view.Snapshot, error) {
	rev, err := o.cfg.Store.Revision(ctx)
	if err != nil {
		return nil, err
	}
	return o.cfg.View.WaitRev(ctx, rev)
}

// entriesAtOnce bounds the entries that are read in one go.
const entriesAtOnce = 100

// entries are those of slips; what was removed meanwhile is left out.
func (o *Operations) entries(ctx context.Context, slips []*fleet.AuditSlip) (out []fleet.AuditEntry, err error) {
	for some := range slices.Chunk(slips, min(entriesAtOnce, o.cfg.Store.MaxOps())) {
		var keys []store.Key[fleet.AuditEntry]
		for _, e := range some {
			keys = append(keys, store.AuditKey(e.ID))
		}
		part, err := store.GetAll(ctx, o.cfg.Store, keys)
		if err != nil {
			return nil, err
		}
		out = append(out, part...)
	}
	return out, nil
}

// pruneSoon has the audit made shorter behind the answer. What cannot be done now is done
// after the next change.
func (o *Operations) pruneSoon() {
	if !o.pruning.CompareAndSwap(false, true) {
		return
	}
	select {
	case o.jobs <- func(ctx context.Context) {
		defer o.pruning.Store(false)
		if err := o.PruneAudit(ctx, KeepAudit); err != nil && ctx.Err() == nil {
			o.cfg.Log.Warn("old entries of the audit not removed, trying again later", "error", err)
		}
	}:
	default:
		o.pruning.Store(false)
	}
}

// PruneAudit removes the oldest entries past keep, and past the size that all may have
// together. Replicas that prune at once remove the same ones; who comes second leaves the
// rest to the next time.
func (o *Operations) PruneAudit(ctx context.Context, keep int) error {
	for batch := range slices.Chunk(excess(o.Snapshot(), keep), o.cfg.Store.MaxOps()-1) {
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

// excess are the entries past what is kept, oldest first.
func excess(s *view.Snapshot, keep int) (out []*fleet.AuditSlip) {
	n, size := 0, 0
	for _, e := range s.Audit.Back() {
		n, size = n+1, size+e.Bytes
		if n > keep || size > keepAuditBytes {
			out = append(out, e)
		}
	}
	slices.Reverse(out)
	return out
}
