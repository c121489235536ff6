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

// QuotaWrite asks for a quota to be as it says.
type QuotaWrite struct {
	// Quota is the wanted one; By and At are set when it is written.
	Quota fleet.Quota
	// IfMatch is the revision the quota must be at; 0 accepts any. Present and
	// Absent are revisions too.
	IfMatch int64
	// DryRun decides everything and writes nothing.
	DryRun bool
}

// QuotaWritten is what came of a QuotaWrite.
type QuotaWritten struct {
	// Before is nil when the quota was created.
	Before *fleet.Quota
	// After is the quota as written, of a dry run as it would be.
	After fleet.Quota
}

// WriteQuota creates or replaces a quota. Once it is committed, nothing that was
// decided under the one before is placed. Nothing is stopped because a limit is
// below what is held. Invalid names every field at fault; MovedError when IfMatch
// does not hold. A quota that changes nothing writes nothing.
func (o *Operations) WriteQuota(ctx context.Context, by Actor, w QuotaWrite) (out QuotaWritten, err error) {
	if err := joined(w.Quota.Validate()); err != nil {
		return out, err
	}
	_, err = o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		old, err := w.target(s)
		if err != nil {
			return change{}, err
		}
		if out.Before, out.After = old, w.Quota; old != nil && sameQuota(*old, w.Quota) {
			out.After = *old
			return change{}, nil
		}
		if out.After.By, out.After.At = by.User, o.now(); w.DryRun {
			return change{}, nil
		}
		return quotaChange(old, out.After), nil
	})
	if err != nil || w.DryRun {
		return out, err
	}
	if q, ok := o.Snapshot().Quotas.Get(w.Quota.Name); ok {
		out.After = *q
	}
	return out, nil
}

// target is the quota a write is about, nil when it is to be created.
func (w QuotaWrite) target(s *view.Snapshot) (*fleet.Quota, error) {
	old, ok := s.Quotas.Get(w.Quota.Name)
	if !ok {
		old = &fleet.Quota{}
	}
	if err := unmoved("quota "+w.Quota.Name, w.IfMatch, old.ModRev); err != nil || !ok {
		return nil, err
	}
	return old, nil
}

func sameQuota(a, b fleet.Quota) bool {
	return maps.Equal(a.Selector, b.Selector) && a.Limit == b.Limit && a.Reserved == b.Reserved
}

// quotaChange writes a quota and touches what every placement under it compares, and
// every one that leaves room for reservations.
func quotaChange(old *fleet.Quota, q fleet.Quota) change {
	c := change{audit: entry{action: "quota.create", resource: "quota", id: q.Name, details: quotaDetails(q), before: quotaRecord(old), after: quotaRecord(&q)}}
	var rev int64
	if old != nil {
		rev, c.audit.action = old.ModRev, "quota.update"
	}
	c.writes = []store.Write{store.Replace(store.QuotaKey(q.Name), q, rev)}
	for _, name := range []string{q.Name, fleet.ReservedAlloc} {
		c.writes = append(c.writes, store.Touch(store.QuotaAllocKey(name), fleet.QuotaAlloc{Quota: name}))
	}
	return c
}

// quotaDetails are what the audit keeps of a quota.
func quotaDetails(q fleet.Quota) string {
	b, err := json.Marshal(map[string]any{"selector": q.Selector, "limit": q.Limit, "reserved": q.Reserved})
	if err != nil { // text and whole numbers
		return ""
	}
	return string(b)
}

// DeleteQuota removes a quota: it bounds nothing any more. NotFound when there is
// none; MovedError when ifMatch, if it is not 0, does not hold. With dryRun only the
// checks are made.
func (o *Operations) DeleteQuota(ctx context.Context, by Actor, name string, ifMatch int64, dryRun bool) error {
	_, err := o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		q, ok := s.Quotas.Get(name)
		if !ok {
			return change{}, errs.New(errs.NotFound, "there is no quota %s", clip(name))
		}
		if err := unmoved("quota "+name, ifMatch, q.ModRev); err != nil || dryRun {
			return change{}, err
		}
		return change{
			writes: []store.Write{store.Remove(store.QuotaKey(name), q.ModRev), store.Forget(store.QuotaAllocKey(name))},
			audit:  entry{action: "quota.delete", resource: "quota", id: name, details: quotaDetails(*q), before: quotaRecord(q)},
		}, nil
	})
	return err
}

// Held is what the instances of each group hold of nodes now.
func Held(s *view.Snapshot) map[fleet.GroupName]fleet.Budget {
	held := map[fleet.GroupName]fleet.Budget{}
	for _, i := range s.Instances.All() {
		if i.HoldsNode() {
			held[i.Intent.Group] = held[i.Intent.Group].Add(fleet.BudgetOf(i.Placement.Resources))
		}
	}
	return held
}

// HeldUnder is what the groups a quota covers hold together, of what each one does.
func HeldUnder(s *view.Snapshot, q fleet.Quota, held map[fleet.GroupName]fleet.Budget) fleet.Budget {
	var sum fleet.Budget
	for name, g := range s.Groups.All() {
		if q.Covers(g.Spec.Labels) {
			sum = sum.Add(held[name])
		}
	}
	return sum
}
