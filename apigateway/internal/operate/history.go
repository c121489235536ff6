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

// auditLife is how long entries of the audit are kept.
const auditLife = 90 * 24 * time.Hour

// auditBound returns how many entries of a class are kept, and how many bytes of them. A class
// that strangers or instances fill takes the least.
func auditBound(c fleet.AuditClass) fleet.AuditTotal {
	switch c {
	case fleet.AuditChange:
		return fleet.AuditTotal{Entries: 10_000, Bytes: 64 << 20}
	case fleet.AuditAccess, fleet.AuditLogin:
		return fleet.AuditTotal{Entries: 5_000, Bytes: 8 << 20}
	case fleet.AuditUnproven, fleet.AuditWorkload, fleet.AuditClasses:
	}
	return fleet.AuditTotal{Entries: 2_000, Bytes: 4 << 20}
}

// overfull reports whether some class is a twentieth or more past its bound.
func overfull(s *view.Snapshot) bool {
	for class, total := range s.AuditTotals {
		most := auditBound(fleet.AuditClass(class))
		if total.Entries >= most.Entries+most.Entries/20 || total.Bytes >= most.Bytes+most.Bytes/20 {
			return true
		}
	}
	return false
}

// AuditQuery says which entries of the audit are meant; empty fields bound nothing.
type AuditQuery struct {
	User, Action, ResourceType, ResourceID string
	// Class is a fleet.AuditClass by its name.
	Class string
	// Since is when the oldest was made at the earliest; all were made before Until.
	Since, Until time.Time
	// Before is the id of the entry all are older than.
	Before string
}

func (q AuditQuery) wants(e *fleet.AuditSlip) bool {
	is := func(wanted, has string) bool { return wanted == "" || wanted == has }
	return is(q.User, e.Username) && is(q.Action, e.Action) && is(q.ResourceType, e.ResourceType) && is(q.ResourceID, e.ResourceID) &&
		(q.Class == "" || q.Class == e.Class().String()) &&
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
		if err := o.PruneAudit(ctx); err != nil && ctx.Err() == nil {
			o.cfg.Log.Warn("old entries of the audit not removed, trying again later", "error", err)
		}
	}:
	default:
		o.pruning.Store(false)
	}
}

// PruneAudit removes the entries that are too old, and of each class the oldest past its
// bound. Replicas that prune at once remove the same ones; the slower one leaves the rest to
// the next time.
func (o *Operations) PruneAudit(ctx context.Context) error {
	for batch := range slices.Chunk(excess(o.Snapshot(), o.now(), auditBound), o.cfg.Store.MaxOps()-1) {
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

// excess are the entries that are not kept, oldest first. The newest AuditChange stays
// whatever its age: it marks how far back the past is known.
func excess(s *view.Snapshot, now time.Time, bound func(fleet.AuditClass) fleet.AuditTotal) (out []*fleet.AuditSlip) {
	var kept [fleet.AuditClasses]fleet.AuditTotal
	for _, e := range s.Audit.Back() {
		class := e.Class()
		total, most := &kept[class], bound(class)
		total.Entries++
		total.Bytes += e.Bytes
		aged := now.Sub(e.CreatedAt) > auditLife && (class != fleet.AuditChange || total.Entries > 1)
		if aged || total.Entries > most.Entries || total.Bytes > most.Bytes {
			out = append(out, e)
		}
	}
	slices.Reverse(out)
	return out
}
