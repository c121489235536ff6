package controller

import (
	"maps"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/budget"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// gate is a quota-allocs record that placements touch. Like a lane, it allows one part in
// progress at a time. Conflicts with other schedulers are found by the comparison.
type gate struct {
	key  string
	busy bool
	// rev is the record's revision from our last answer; 0 when the view's is the newest.
	rev int64
	// since is the revision that the view must reach before a part may pass, after a lost
	// comparison.
	since int64
}

// passage is a part's use of a gate, with the revision to compare.
type passage struct {
	gate *gate
	rev  int64
}

// passThrough adds the gates of an entry to a part; false when one of them is busy or waits
// for the view.
func (c *Controller) passThrough(p *part, touches []string) bool {
	var ways []passage
	for _, key := range touches {
		if p.through(key) {
			continue
		}
		g := c.gates[key]
		if g == nil {
			g = &gate{key: key}
			c.gates[key] = g
		}
		if g.busy || g.since > c.state.snap.Rev {
			return false
		}
		rev := g.rev
		if a, ok := c.state.snap.QuotaAllocs.Get(key); ok {
			rev = max(rev, a.ModRev)
		}
		ways = append(ways, passage{g, rev})
	}
	for _, w := range ways {
		w.gate.busy = true
	}
	p.gates = append(p.gates, ways...)
	return true
}

func (p *part) through(key string) bool {
	for _, g := range p.gates {
		if g.gate.key == key {
			return true
		}
	}
	return false
}

// passed frees a part's gates after a commit.
func (p *part) passed(rev int64) {
	for _, g := range p.gates {
		g.gate.busy, g.gate.rev = false, rev
	}
}

// refused frees a part's gates. They wait until the view has reached rev.
func (p *part) refused(rev int64) {
	for _, g := range p.gates {
		g.gate.busy, g.gate.rev, g.gate.since = false, 0, rev
	}
}

// untried frees a part's gates unchanged.
func (p *part) untried() {
	for _, g := range p.gates {
		g.gate.busy = false
	}
}

// forgetGates resets the revisions of a lost history.
func (c *Controller) forgetGates() {
	for _, g := range c.gates {
		g.rev, g.since = 0, 0
	}
}

// forgetPassed deletes idle gates without a record. Such gates exist only after quotas or
// groups were deleted.
func (c *Controller) forgetPassed() {
	snap := c.state.snap
	if len(c.gates) <= snap.QuotaAllocs.Len() {
		return
	}
	maps.DeleteFunc(c.gates, func(key string, g *gate) bool {
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
	s.evened(h.Group)
}

// discharge undoes charge.
func (s *state) discharge(h place.Hold) {
	s.model.Release(h)
	s.ledger.Release(h.Node, h.Group, h.Resources)
}

// keeps reports whether a decision still respects all quotas and reservations, and which
// records it must touch. The ledger is already charged with it.
func (s *state) keeps(e *entry) (touches []string, ok bool) {
	if !s.ledger.Shared() {
		return nil, true
	}
	h := &e.choice.Hold
	s.ledger.Release(h.Node, h.Group, h.Resources)
	touches, no := s.ledger.Ask(h.Group, h.Resources)
	s.ledger.Charge(h.Node, h.Group, h.Resources)
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

// ledgerOf builds the ledger of a snapshot.
func ledgerOf(snap *view.Snapshot) *budget.Ledger {
	l := budget.NewLedger()
	for name, g := range snap.Groups.All() {
		l.SetGroup(name, budget.TermsOf(&g.Spec))
	}
	for _, q := range snap.Quotas.All() {
		l.SetQuota(q)
	}
	for id, n := range snap.Nodes.All() {
		facts := nodeOf(snap, id, n)
		l.SetNode(id, budgetOf(&facts))
	}
	for _, all := range []view.Table[fleet.InstanceID, *fleet.Instance]{snap.Instances, snap.Orphans} {
		for _, i := range all.All() {
			if h, ok := holdOf(i); ok {
				l.Charge(h.Node, h.Group, h.Resources)
			}
		}
	}
	return l
}

// refusal returns why a ledger refuses a request, or nil when it allows it.
func refusal(l *budget.Ledger, r *place.Request) *place.Unfit {
	if _, no := l.Ask(r.Group, r.Plan.Resources); no != nil {
		return &place.Unfit{Reason: no.Reason, Message: no.Message}
	}
	return nil
}

// setGroup applies a group's terms, which may allow more than before.
func (s *state) setGroup(c *view.Change) {
	s.room++
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
	s.room++
	if q, ok := c.After.(*cluster.Quota); ok {
		s.ledger.SetQuota(q)
	} else {
		s.ledger.RemoveQuota(c.Key[0])
	}
}

// budgetOf converts a node for the ledger.
func budgetOf(n *place.Node) budget.Node {
	capacity, _ := n.Room.Of(n.Capacity) // impossible amounts count as 0
	return budget.Node{Usable: n.Live && !n.Cordoned, Capacity: capacity, MaxInstances: n.Room.MaxInstances}
}
