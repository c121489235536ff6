package txn

import (
	"context"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// auditLife is how long entries of the audit are kept.
const auditLife = 90 * 24 * time.Hour

// auditBound returns how many entries of a class are kept, and how many bytes of them. A class
// that strangers or instances fill takes the least.
func auditBound(c account.AuditClass) account.AuditTotal {
	switch c {
	case account.AuditChange:
		return account.AuditTotal{Entries: 10_000, Bytes: 64 << 20}
	case account.AuditAccess, account.AuditLogin:
		return account.AuditTotal{Entries: 5_000, Bytes: 8 << 20}
	case account.AuditUnproven, account.AuditWorkload, account.AuditClasses:
	}
	return account.AuditTotal{Entries: 2_000, Bytes: 4 << 20}
}

// overfull reports whether some class is a twentieth or more past its bound.
func overfull(s *view.Snapshot) bool {
	for class, total := range s.AuditTotals {
		most := auditBound(account.AuditClass(class))
		if total.Entries >= most.Entries+most.Entries/20 || total.Bytes >= most.Bytes+most.Bytes/20 {
			return true
		}
	}
	return false
}

// pruneSoon enqueues PruneAudit. When the queue is full, the next change tries again.
func (o *Committer) pruneSoon() {
	if !o.pruning.CompareAndSwap(false, true) {
		return
	}
	queued := o.Enqueue(func(ctx context.Context) {
		defer o.pruning.Store(false)
		if err := o.PruneAudit(ctx); err != nil && ctx.Err() == nil {
			o.Log.Warn("old entries of the audit not removed, trying again later", "error", err)
		}
	})
	if !queued {
		o.pruning.Store(false)
	}
}

// PruneAudit removes the entries that are too old, and the oldest of each class past its bound.
// Replicas that prune at the same time remove the same entries; the slower one stops, and continues
// the next time.
func (o *Committer) PruneAudit(ctx context.Context) error {
	for batch := range slices.Chunk(excess(o.Snapshot(), o.Now(), auditBound), o.Store.MaxOps()-1) {
		var t store.Txn
		for _, e := range batch {
			t.Writes = append(t.Writes, store.Remove(keys.Audit(e.ID), e.ModRev))
		}
		switch _, err := o.Store.Commit(ctx, t); {
		case errs.Is(err, errs.Conflict):
			return nil
		case err != nil:
			return errs.Wrap("operate.PruneAudit", err)
		}
	}
	return nil
}

// excess returns the entries to remove, oldest first. It keeps the newest AuditChange whatever its
// age, because that marks how far back the past is known.
func excess(s *view.Snapshot, now time.Time, bound func(account.AuditClass) account.AuditTotal) (out []*account.AuditSlip) {
	var kept [account.AuditClasses]account.AuditTotal
	for _, e := range s.Audit.Back() {
		class := e.Class()
		total, most := &kept[class], bound(class)
		total.Entries++
		total.Bytes += e.Bytes
		aged := now.Sub(e.CreatedAt) > auditLife && (class != account.AuditChange || total.Entries > 1)
		if aged || total.Entries > most.Entries || total.Bytes > most.Bytes {
			out = append(out, e)
		}
	}
	slices.Reverse(out)
	return out
}
