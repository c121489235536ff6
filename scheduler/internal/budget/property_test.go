package budget

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
)

var (
	names   = []fleet.GroupName{"a", "b", "c", "d"}
	tenants = []string{"alice", "bob"}
)

func anyBudget(t *rapid.T, label string) fleet.Budget {
	some := func(part string, most int) int {
		return rapid.SampledFrom([]int{0, 0, most / 3, most}).Draw(t, label+part)
	}
	return fleet.Budget{MemoryMiB: some("Memory", 300), CPU: some("CPU", 200), Instances: some("Instances", 6)}
}

func anyTerms(t *rapid.T) Terms {
	return Terms{
		Labels: map[string]string{"tenant": rapid.SampledFrom(tenants).Draw(t, "tenant")},
		Quota:  anyBudget(t, "quota"), Reserved: anyBudget(t, "reserved"),
	}
}

func anyQuota(t *rapid.T) *cluster.Quota {
	name := rapid.SampledFrom(tenants).Draw(t, "name")
	return &cluster.Quota{Name: name, Selector: map[string]string{"tenant": name}, Limit: anyBudget(t, "limit"), Reserved: anyBudget(t, "kept")}
}

func anyNode(t *rapid.T) Node {
	return Node{
		Usable:       rapid.IntRange(0, 3).Draw(t, "usable") > 0,
		Capacity:     fleet.Resources{MemoryMiB: rapid.IntRange(0, 300).Draw(t, "memory"), CPU: rapid.IntRange(0, 200).Draw(t, "cpu")},
		MaxInstances: rapid.IntRange(0, 5).Draw(t, "maxInstances"),
	}
}

func anyResources(t *rapid.T) fleet.Resources {
	return fleet.Resources{MemoryMiB: rapid.IntRange(0, 80).Draw(t, "takes"), CPU: rapid.SampledFrom([]int{0, 0, 10, 60}).Draw(t, "takesCPU")}
}

// facts are the inputs of a ledger.
type facts struct {
	terms  map[fleet.GroupName]Terms
	quotas map[string]*cluster.Quota
	nodes  map[fleet.NodeID]Node
	holds  []hold
}

type hold struct {
	node  fleet.NodeID
	group fleet.GroupName
	takes fleet.Resources
}

func noFacts() *facts {
	return &facts{terms: map[fleet.GroupName]Terms{}, quotas: map[string]*cluster.Quota{}, nodes: map[fleet.NodeID]Node{}}
}

// ledger builds a ledger from the facts.
func (f *facts) ledger() *Ledger {
	l := NewLedger()
	for n, facts := range f.nodes {
		l.SetNode(n, facts)
	}
	for g, terms := range f.terms {
		l.SetGroup(g, terms)
	}
	for _, q := range f.quotas {
		l.SetQuota(q)
	}
	for _, h := range f.holds {
		l.Charge(h.node, h.group, h.takes)
	}
	return l
}

func TestALedgerOnlyDependsOnWhatIsTrueNow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, l := noFacts(), NewLedger()
		anyGroup := func() fleet.GroupName { return rapid.SampledFrom(names).Draw(t, "group") }
		anyID := func() fleet.NodeID { return fleet.NodeID(rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "node")) }
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				fresh := f.ledger()
				for _, g := range names {
					r := fleet.Resources{MemoryMiB: 40, CPU: 20}
					touch, no := l.Ask(g, r)
					want, refusal := fresh.Ask(g, r)
					if !slices.Equal(touch, want) || (no == nil) != (refusal == nil) || no != nil && *no != *refusal {
						t.Fatalf("%s: %q %+v, a new ledger says %q %+v", g, touch, no, want, refusal)
					}
				}
			},
			"setGroup":    func(t *rapid.T) { g, terms := anyGroup(), anyTerms(t); f.terms[g] = terms; l.SetGroup(g, terms) },
			"removeGroup": func(*rapid.T) { g := anyGroup(); delete(f.terms, g); l.RemoveGroup(g) },
			"setQuota":    func(t *rapid.T) { q := anyQuota(t); f.quotas[q.Name] = q; l.SetQuota(q) },
			"removeQuota": func(t *rapid.T) { q := anyQuota(t).Name; delete(f.quotas, q); l.RemoveQuota(q) },
			"setNode":     func(t *rapid.T) { id, n := anyID(), anyNode(t); f.nodes[id] = n; l.SetNode(id, n) },
			"removeNode":  func(*rapid.T) { id := anyID(); delete(f.nodes, id); l.RemoveNode(id) },
			"charge": func(t *rapid.T) {
				h := hold{anyID(), anyGroup(), anyResources(t)}
				f.holds = append(f.holds, h)
				l.Charge(h.node, h.group, h.takes)
			},
			"release": func(t *rapid.T) {
				if len(f.holds) == 0 {
					return
				}
				n := rapid.IntRange(0, len(f.holds)-1).Draw(t, "which")
				h := f.holds[n]
				f.holds = slices.Delete(f.holds, n, n+1)
				l.Release(h.node, h.group, h.takes)
			},
		})
	})
}

// store holds the revisions of the records that placements touch.
type store struct {
	facts
	revs map[string]int
	rev  int
}

// replica decides from its last view of the store.
type replica struct {
	ledger *Ledger
	rev    int
}

// TestReplicasNeverOverspendTogether lets several schedulers place from views of different
// age. The store refuses a commit if one of its records has changed since the view. Nodes
// are records too. No limit may be exceeded, and no reservation may become impossible to
// fill.
func TestReplicasNeverOverspendTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &store{facts: *noFacts(), revs: map[string]int{}}
		for n := range 4 {
			room := anyNode(t)
			room.Usable = true
			s.nodes[fleet.NodeID(fmt.Sprintf("n%d", n))] = room
		}
		s.anyBounds(t)
		replicas := make([]replica, len(names)) // each owns one group
		kept := s.keeps()
		for range rapid.IntRange(20, 60).Draw(t, "steps") {
			who := rapid.IntRange(0, len(names)-1).Draw(t, "who")
			r := &replicas[who]
			if r.ledger == nil || rapid.IntRange(0, 4).Draw(t, "looks") == 0 {
				r.ledger, r.rev = s.ledger(), s.rev
			}
			s.place(r, hold{fleet.NodeID(fmt.Sprintf("n%d", rapid.IntRange(0, 3).Draw(t, "node"))), names[who], anyResources(t)})
			s.check(t, kept)
		}
	})
}

// anyBounds draws the limits and reservations of the groups. They are either arbitrary or
// so small that placements soon reach them: a tenant's limit, a tenant's reservation, or
// the groups' own.
func (s *store) anyBounds(t *rapid.T) {
	kind := rapid.SampledFrom([]string{"any", "limit", "tenant's", "own"}).Draw(t, "bounds")
	for n, g := range names {
		terms := anyTerms(t)
		if kind != "any" {
			terms.Quota = fleet.Budget{}
			terms.Labels = map[string]string{"tenant": tenants[n/3]}
		}
		if kind == "limit" || kind == "tenant's" && n < 3 {
			terms.Reserved = fleet.Budget{}
		}
		s.terms[g] = terms
	}
	switch q := anyQuota(t); kind {
	case "limit":
		s.quotas["alice"] = &cluster.Quota{Name: "alice", Selector: map[string]string{"tenant": "alice"}, Limit: fleet.Budget{MemoryMiB: 300, Instances: 8}}
	case "tenant's":
		s.quotas["alice"] = &cluster.Quota{Name: "alice", Selector: map[string]string{"tenant": "alice"}, Reserved: fleet.Budget{MemoryMiB: 100}}
	case "any":
		s.quotas[q.Name] = q
	}
}

// place decides and commits as a scheduler does. A replica sees its own commits.
func (s *store) place(r *replica, h hold) {
	room := r.ledger.nodes[h.node]
	free := room.free()
	if !h.takes.Fits(fleet.Resources{MemoryMiB: free.MemoryMiB, CPU: free.CPU}) || room.MaxInstances > 0 && free.Instances < 1 {
		return
	}
	touch, no := r.ledger.Ask(h.group, h.takes)
	if no != nil {
		return
	}
	touch = append(touch, "node "+string(h.node))
	for _, key := range touch {
		if s.revs[key] > r.rev {
			r.ledger, r.rev = s.ledger(), s.rev // the commit was refused; refresh the view
			return
		}
	}
	s.rev++
	for _, key := range touch {
		s.revs[key] = s.rev
	}
	s.holds = append(s.holds, h)
	r.ledger, r.rev = s.ledger(), s.rev
}

// keeps returns the parts whose reservations still fit into what is free.
func (s *store) keeps() []part {
	l := s.ledger()
	var out []part
	for _, p := range parts {
		if p.of(l.free) >= p.of(l.unfilled) && !p.unbounded(l) {
			out = append(out, p)
		}
	}
	return out
}

func (s *store) check(t *rapid.T, kept []part) {
	l := s.ledger()
	for _, g := range l.groups {
		for _, a := range g.accounts {
			if !a.held.Within(a.limit) {
				t.Fatalf("%s holds %+v of %+v", a.title, a.held, a.limit)
			}
		}
	}
	for _, p := range kept {
		if free, unfilled := p.of(l.free), p.of(l.unfilled); free < unfilled {
			t.Fatalf("%s are free, %s are reserved", p.amount(free), p.amount(unfilled))
		}
	}
}
