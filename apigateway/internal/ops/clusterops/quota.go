package clusterops

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/applied"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// QuotaWrite creates or replaces a quota.
type QuotaWrite struct {
	// Quota is the desired quota. The write sets By and At.
	Quota cluster.Quota
	// IfMatch is the required revision, Present or Absent; 0 accepts any.
	IfMatch int64
	// DryRun computes the result and writes nothing.
	DryRun bool
}

// QuotaWritten is the result of a QuotaWrite.
type QuotaWritten struct {
	// Before is nil when the quota was created.
	Before *cluster.Quota
	// After is the quota as written, or as a dry run would write it.
	After cluster.Quota
}

// WriteQuota creates or replaces a quota. After the commit, the scheduler places nothing that it
// decided under the old quota. Instances above a lower limit continue to run. Invalid names every
// wrong field, MovedError when IfMatch does not match. It writes nothing when nothing changes.
func (o *Cluster) WriteQuota(ctx context.Context, by txn.Actor, w QuotaWrite) (out QuotaWritten, err error) {
	if err := txn.JoinProblems(w.Quota.Validate()); err != nil {
		return out, err
	}
	_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		old, err := w.target(s)
		if err != nil {
			return txn.Change{}, err
		}
		if out.Before, out.After = old, w.Quota; old != nil && sameQuota(*old, w.Quota) {
			out.After = *old
			return txn.Change{}, nil
		}
		if out.After.By, out.After.At = by.User, o.Now(); w.DryRun {
			return txn.Change{}, nil
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
func (w QuotaWrite) target(s *view.Snapshot) (*cluster.Quota, error) {
	old, ok := s.Quotas.Get(w.Quota.Name)
	if !ok {
		old = &cluster.Quota{}
	}
	if err := txn.CheckRevision("quota "+w.Quota.Name, w.IfMatch, old.ModRev); err != nil || !ok {
		return nil, err
	}
	return old, nil
}

func sameQuota(a, b cluster.Quota) bool {
	return maps.Equal(a.Selector, b.Selector) && a.Limit == b.Limit && a.Reserved == b.Reserved
}

// quotaChange writes a quota, and touches the records that placements compare, so that placements
// decided under the old quota fail.
func quotaChange(old *cluster.Quota, q cluster.Quota) txn.Change {
	c := txn.Change{Audit: txn.Entry{Action: "quota.create", Resource: "quota", ID: q.Name, Details: quotaDetails(q), Before: QuotaRecord(old), After: QuotaRecord(&q)}}
	var rev int64
	if old != nil {
		rev, c.Audit.Action = old.ModRev, "quota.update"
	}
	c.Writes = []store.Write{store.Replace(keys.Quota(q.Name), q, rev)}
	for _, name := range []string{q.Name, fleet.ReservedAlloc} {
		c.Writes = append(c.Writes, store.Touch(keys.QuotaAlloc(name), cluster.QuotaAlloc{Quota: name}))
	}
	return c
}

// quotaDetails are what the audit keeps of a quota.
func quotaDetails(q cluster.Quota) string {
	b, err := json.Marshal(map[string]any{"selector": q.Selector, "limit": q.Limit, "reserved": q.Reserved})
	if err != nil { // unreachable: only strings and integers
		return ""
	}
	return string(b)
}

// DeleteQuota removes a quota. NotFound when it does not exist, MovedError when ifMatch is not 0
// and not its revision. With dryRun it only checks.
func (o *Cluster) DeleteQuota(ctx context.Context, by txn.Actor, name string, ifMatch int64, dryRun bool) error {
	_, err := o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		q, ok := s.Quotas.Get(name)
		if !ok {
			return txn.Change{}, errs.New(errs.NotFound, "there is no quota %s", txn.Clip(name))
		}
		if err := txn.CheckRevision("quota "+name, ifMatch, q.ModRev); err != nil || dryRun {
			return txn.Change{}, err
		}
		c := txn.Change{
			Writes: []store.Write{store.Remove(keys.Quota(name), q.ModRev), store.Forget(keys.QuotaAlloc(name))},
			Audit:  txn.Entry{Action: "quota.delete", Resource: "quota", ID: name, Details: quotaDetails(*q), Before: QuotaRecord(q)},
		}
		c.DropApplied(s, applied.Quota, name)
		return c, nil
	})
	return err
}

// Held returns the resources that the instances of each group hold on nodes.
func Held(s *view.Snapshot) map[fleet.GroupName]fleet.Budget {
	held := map[fleet.GroupName]fleet.Budget{}
	for _, i := range s.Instances.All() {
		if i.HoldsNode() {
			held[i.Intent.Group] = held[i.Intent.Group].Add(fleet.BudgetOf(i.Occupies()))
		}
	}
	return held
}

// HeldUnder returns the sum of held over the groups that a quota covers.
func HeldUnder(s *view.Snapshot, q cluster.Quota, held map[fleet.GroupName]fleet.Budget) fleet.Budget {
	var sum fleet.Budget
	for name, g := range s.Groups.All() {
		if q.Covers(g.Spec.Labels) {
			sum = sum.Add(held[name])
		}
	}
	return sum
}

// QuotaRecord is what the audit keeps of a quota.
func QuotaRecord(q *cluster.Quota) any {
	if q == nil {
		return nil
	}
	return map[string]any{"selector": q.Selector, "limit": q.Limit, "reserved": q.Reserved}
}
