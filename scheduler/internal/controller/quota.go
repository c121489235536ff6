package controller

import (
	"maps"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/budget"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// gate is a quota-allocs record that placements touch. One part at a time is under
// way through it, like through a node's lane: what another scheduler did with it
// meanwhile is met by the comparison.
type gate struct {
	key  string
	busy bool
	// rev is the record's revision as the last answer said; 0 when only the view knows it.
	rev int64
	// since is the revision the view has to reach before anything passes: what a comparison was lost to.
	since int64
}

// passage is a part's way through a gate, with the revision it compares.
type passage struct {
	gate *gate
	rev  int64
}

// passThrough leads a part through the gates of an entry; false when one of them is shut.
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

// passed opens a part's gates after it was made.
func (p *part) passed(rev int64) {
	for _, g := range p.gates {
		g.gate.busy, g.gate.rev = false, rev
	}
}

// refused opens them once the view shows what became of it.
func (p *part) refused(rev int64) {
	for _, g := range p.gates {
		g.gate.busy, g.gate.rev, g.gate.since = false, 0, rev
	}
}

// untried opens them as they were.
func (p *part) untried() {
	for _, g := range p.gates {
		g.gate.busy = false
	}
}

// forgetGates forgets revisions of a lost past.
func (c *Controller) forgetGates() {
	for _, g := range c.gates {
		g.rev, g.since = 0, 0
	}
}

// forgetPassed lets the gates go whose records are gone: there are more of them than
// records only when quotas and groups were deleted.
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

// touchBudget compares and renews a quota-allocs record.
func touchBudget(key string, rev int64) store.Write {
	return store.Replace(store.QuotaAllocKey(key), fleet.QuotaAlloc{Quota: key}, rev)
}

// charge books a hold.
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

// keeps reports whether what was decided still keeps all quotas and reservations,
// and which records it must touch. The ledger has been charged with it.
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

// setBudgets tells a new ledger all quotas and reservations.
func (s *state) setBudgets() {
	for name, g := range s.snap.Groups.All() {
		s.ledger.SetGroup(name, budget.TermsOf(&g.Spec))
		s.balance(name, g)
	}
	for _, q := range s.snap.Quotas.All() {
		s.ledger.SetQuota(q)
	}
}

// ledgerOf is the ledger of a snapshot.
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

// refusal is why a ledger allows no placement of a request; nil when it does.
func refusal(l *budget.Ledger, r *place.Request) *place.Unfit {
	if _, no := l.Ask(r.Group, r.Plan.Resources); no != nil {
		return &place.Unfit{Reason: no.Reason, Message: no.Message}
	}
	return nil
}

// setGroup takes in a group's terms. They may allow more than before.
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

// setQuota takes in a tenant's quota.
func (s *state) setQuota(c *view.Change) {
	s.room++
	if q, ok := c.After.(*fleet.Quota); ok {
		s.ledger.SetQuota(q)
	} else {
		s.ledger.RemoveQuota(c.Key[0])
	}
}

// budgetOf is what the ledger needs to know of a node.
func budgetOf(n *place.Node) budget.Node {
	capacity, _ := n.Room.Of(n.Capacity) // what cannot be counts as nothing
	return budget.Node{Usable: n.Live && !n.Cordoned, Capacity: capacity, MaxInstances: n.Room.MaxInstances}
}
