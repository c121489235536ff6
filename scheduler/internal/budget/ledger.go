package budget

import (
	"cmp"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
)

// Ledger tracks the resources that each group and each quota holds, and the free total. One
// goroutine owns it.
type Ledger struct {
	rooms
	groups map[fleet.GroupName]*group
	// quotas maps the names of tenants' quotas to their accounts.
	quotas map[string]*account
	// reserving are the accounts with a reservation, sorted by key.
	reserving []*account
	// unfilled is the sum of the unfilled reservations.
	unfilled fleet.Budget
}

// account is the limit and reservation of a quota or a group, with the resources that its
// instances hold.
type account struct {
	// key sorts accounts. The key of a quota is its name, which is also the name of the
	// record that placements touch.
	key string
	// title names the account in explanations: "quota alice".
	title           string
	limit, reserved fleet.Budget
	held            fleet.Budget
	// selects is nil for a group's own account.
	selects *cluster.Quota
}

// group is a group with its accounts: its own first, then those of the quotas that count
// it, sorted by key.
type group struct {
	labels   map[string]string
	held     fleet.Budget
	accounts []*account
}

func (g *group) own() *account { return g.accounts[0] }

// Terms are the parts of a group's spec that concern its budget.
type Terms struct {
	Labels          map[string]string
	Quota, Reserved fleet.Budget
}

// TermsOf returns the terms of a spec.
func TermsOf(s *fleet.GroupSpec) Terms {
	return Terms{Labels: s.Labels, Quota: s.Quota, Reserved: s.Reserved}
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{rooms: rooms{nodes: map[fleet.NodeID]*room{}}, groups: map[fleet.GroupName]*group{}, quotas: map[string]*account{}}
}

// SetGroup adds a group or changes its terms. The group keeps its holds.
func (l *Ledger) SetGroup(name fleet.GroupName, t Terms) {
	g := l.group(name)
	g.labels = t.Labels
	l.setTerms(g.own(), t.Quota, t.Reserved)
	l.recount(g)
}

// RemoveGroup removes a group's terms. The ledger keeps what its instances still hold.
func (l *Ledger) RemoveGroup(name fleet.GroupName) {
	l.SetGroup(name, Terms{})
	l.forget(name)
}

// forget deletes a group without terms and holds.
func (l *Ledger) forget(name fleet.GroupName) {
	g, ok := l.groups[name]
	if !ok || len(g.labels) > 0 || g.held != (fleet.Budget{}) {
		return
	}
	if own := g.own(); own.limit == (fleet.Budget{}) && own.reserved == (fleet.Budget{}) {
		delete(l.groups, name)
	}
}

// SetQuota adds or changes a tenant's quota.
func (l *Ledger) SetQuota(q *cluster.Quota) {
	a, ok := l.quotas[q.Name]
	if !ok {
		a = &account{key: q.Name, title: "quota " + q.Name}
		l.quotas[q.Name] = a
	}
	a.selects = q
	l.setTerms(a, q.Limit, q.Reserved)
	for _, g := range l.groups {
		l.recount(g)
	}
}

// RemoveQuota removes a tenant's quota.
func (l *Ledger) RemoveQuota(name string) {
	a, ok := l.quotas[name]
	if !ok {
		return
	}
	delete(l.quotas, name)
	l.setTerms(a, fleet.Budget{}, fleet.Budget{})
	for _, g := range l.groups {
		l.recount(g)
	}
}

// Shared reports whether any quota or reservation exists. Without one, placements touch no
// quota-allocs record.
func (l *Ledger) Shared() bool { return len(l.quotas) > 0 || len(l.reserving) > 0 }

// Charge adds what one instance of a group holds on a node.
func (l *Ledger) Charge(n fleet.NodeID, name fleet.GroupName, r fleet.Resources) {
	l.occupy(n, r, 1)
	l.book(l.group(name), fleet.BudgetOf(r))
}

// Release undoes Charge.
func (l *Ledger) Release(n fleet.NodeID, name fleet.GroupName, r fleet.Resources) {
	l.occupy(n, r, -1)
	l.book(l.group(name), fleet.Budget{}.Sub(fleet.BudgetOf(r)))
	l.forget(name)
}

func (l *Ledger) book(g *group, b fleet.Budget) {
	g.held = g.held.Add(b)
	for _, a := range g.accounts {
		l.hold(a, b)
	}
}

// group returns a group's entry. It creates a missing one, because a hold may arrive before
// its group.
func (l *Ledger) group(name fleet.GroupName) *group {
	if g, ok := l.groups[name]; ok {
		return g
	}
	g := &group{accounts: []*account{{key: ".group." + string(name), title: "group " + string(name)}}}
	l.groups[name] = g
	return g
}

// recount makes exactly the quotas that cover a group's labels count the group.
func (l *Ledger) recount(g *group) {
	covers := g.accounts[:1:1]
	for _, a := range l.quotas {
		if a.selects.Covers(g.labels) {
			covers = append(covers, a)
		}
	}
	slices.SortFunc(covers[1:], byKey)
	for _, a := range g.accounts {
		if !slices.Contains(covers, a) {
			l.hold(a, fleet.Budget{}.Sub(g.held))
		}
	}
	for _, a := range covers {
		if !slices.Contains(g.accounts, a) {
			l.hold(a, g.held)
		}
	}
	g.accounts = covers
}

func (l *Ledger) setTerms(a *account, limit, reserved fleet.Budget) {
	l.unfilled = l.unfilled.Sub(a.unfilled())
	a.limit, a.reserved = limit, reserved
	l.unfilled = l.unfilled.Add(a.unfilled())
	at, listed := slices.BinarySearchFunc(l.reserving, a, byKey)
	reserves := reserved != fleet.Budget{}
	switch {
	case reserves && !listed:
		l.reserving = slices.Insert(l.reserving, at, a)
	case !reserves && listed:
		l.reserving = slices.Delete(l.reserving, at, at+1)
	}
}

func (l *Ledger) hold(a *account, b fleet.Budget) {
	l.unfilled = l.unfilled.Sub(a.unfilled())
	a.held = a.held.Add(b)
	l.unfilled = l.unfilled.Add(a.unfilled())
}

func byKey(a, b *account) int { return cmp.Compare(a.key, b.key) }

// unfilled returns what is reserved but not held, at least 0.
func (a *account) unfilled() fleet.Budget { return floor(a.reserved.Sub(a.held)) }

func floor(b fleet.Budget) fleet.Budget {
	return fleet.Budget{MemoryMiB: max(0, b.MemoryMiB), CPU: max(0, b.CPU), Instances: max(0, b.Instances)}
}
