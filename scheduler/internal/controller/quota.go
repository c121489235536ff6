package controller

import (
	"maps"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/budget"
	"github.com/orreryhq/orrery/scheduler/internal/facts"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// quotaLock is a quota-allocs record that placements touch. Like a node's queue, it allows
// one part in progress at a time. Conflicts with other schedulers are found by the comparison.
type quotaLock struct {
	key  string
	busy bool
	// rev is the record's revision from our last answer; 0 when the view's is the newest.
	rev int64
	// since is the revision that the view must reach before a part may pass, after a lost
	// comparison.
	since int64
}

// quotaUse is a part's use of a quota lock, with the revision to compare.
type quotaUse struct {
	lock *quotaLock
	rev  int64
}

// lockQuotas adds the quota locks of an entry to a part. It returns false when one of them
// is busy or waits for the view.
func (c *Controller) lockQuotas(p *part, touches []string) bool {
	var uses []quotaUse
	for _, key := range touches {
		if p.locks(key) {
			continue
		}
		g := c.quotaLocks[key]
		if g == nil {
			g = &quotaLock{key: key}
			c.quotaLocks[key] = g
		}
		if g.busy || g.since > c.state.snap.Rev {
			return false
		}
		rev := g.rev
		if a, ok := c.state.snap.QuotaAllocs.Get(key); ok {
			rev = max(rev, a.ModRev)
		}
		uses = append(uses, quotaUse{g, rev})
	}
	for _, w := range uses {
		w.lock.busy = true
	}
	p.quotas = append(p.quotas, uses...)
	return true
}

func (p *part) locks(key string) bool {
	for _, g := range p.quotas {
		if g.lock.key == key {
			return true
		}
	}
	return false
}

// quotasCommitted frees a part's quota locks after a commit.
func (p *part) quotasCommitted(rev int64) {
	for _, g := range p.quotas {
		g.lock.busy, g.lock.rev = false, rev
	}
}

// quotasRefused frees a part's quota locks. They wait until the view has reached rev.
func (p *part) quotasRefused(rev int64) {
	for _, g := range p.quotas {
		g.lock.busy, g.lock.rev, g.lock.since = false, 0, rev
	}
}

// quotasUntried frees a part's quota locks unchanged.
func (p *part) quotasUntried() {
	for _, g := range p.quotas {
		g.lock.busy = false
	}
}

// resetQuotaLocks resets the revisions of a lost history.
func (c *Controller) resetQuotaLocks() {
	for _, g := range c.quotaLocks {
		g.rev, g.since = 0, 0
	}
}

// deleteIdleLocks deletes idle locks without a record. They exist only after quotas or
// groups were deleted.
func (c *Controller) deleteIdleLocks() {
	snap := c.state.snap
	if len(c.quotaLocks) <= snap.QuotaAllocs.Len() {
		return
	}
	maps.DeleteFunc(c.quotaLocks, func(key string, g *quotaLock) bool {
		_, there := snap.QuotaAllocs.Get(key)
		return !there && !g.busy && g.rev <= snap.Rev && g.since <= snap.Rev
	})
}

// touchBudget returns a write that compares and updates a quota-allocs record.
func touchBudget(key string, rev int64) store.Write {
	return store.Replace(keys.QuotaAlloc(key), cluster.QuotaAlloc{Quota: key}, rev)
}

// charge adds a hold to the model and the ledger.
func (s *state) charge(h place.Hold) {
	s.model.Charge(h)
	s.ledger.Charge(h.Node, h.Group, h.Resources)
	s.spreadChanged(h.Group)
}

// discharge undoes charge.
func (s *state) discharge(h place.Hold) {
	s.model.Release(h)
	s.ledger.Release(h.Node, h.Group, h.Resources)
}

// withinBudget reports whether a decision still respects all quotas and reservations, and which
// records it must touch. The ledger is already charged with it.
func (s *state) withinBudget(e *entry) (touches []string, ok bool) {
	if !s.ledger.Shared() {
		return nil, true
	}
	holds := []*place.Hold{&e.choice.Hold}
	if own, ok := facts.Hold(e.instance); ok && e.instance.Waking() {
		holds = append(holds, &own)
	}
	for _, h := range holds {
		s.ledger.Release(h.Node, h.Group, h.Resources)
		defer s.ledger.Charge(h.Node, h.Group, h.Resources)
	}
	touches, no := s.ledger.Ask(e.choice.Hold.Group, e.choice.Hold.Resources)
	return touches, no == nil
}

// setBudgets fills a new ledger with all quotas and reservations.
func (s *state) setBudgets() {
	for name, g := range s.snap.Groups.All() {
		s.ledger.SetGroup(name, budget.TermsOf(&g.Spec))
		s.balance(name, g)
	}
	for _, q := range s.snap.Quotas.All() {
		s.ledger.SetQuota(q)
	}
}

// setGroup applies a group's terms, which may allow more than before.
func (s *state) setGroup(c *view.Change) {
	s.capacityVersion++
	name := fleet.GroupName(c.Key[0])
	g, ok := c.After.(*fleet.Group)
	s.balance(name, g)
	if ok {
		s.ledger.SetGroup(name, budget.TermsOf(&g.Spec))
	} else {
		s.ledger.RemoveGroup(name)
	}
}

// setQuota applies a tenant's quota.
func (s *state) setQuota(c *view.Change) {
	s.capacityVersion++
	if q, ok := c.After.(*cluster.Quota); ok {
		s.ledger.SetQuota(q)
	} else {
		s.ledger.RemoveQuota(c.Key[0])
	}
}
