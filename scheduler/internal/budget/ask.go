package budget

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Refusal says why an instance may not be placed on any node now.
type Refusal struct {
	// Reason is ReasonQuotaSpent or ReasonReserved.
	Reason  fleet.Reason
	Message string
}

// MaxTouches bounds the quotas that one placement touches, to bound the size of its
// transaction.
const MaxTouches = 32

// Ask decides whether one more instance of a group may take r. On approval, touch names the
// quota-allocs records that the placement's transaction must compare and update. touch is
// sorted, may be empty and has at most MaxTouches+1 names.
func (l *Ledger) Ask(name fleet.GroupName, r fleet.Resources) (touch []string, no *Refusal) {
	g := l.group(name)
	want := fleet.BudgetOf(r)
	for _, a := range g.accounts {
		if !a.held.Add(want).Within(a.limit) {
			return nil, &Refusal{fleet.ReasonQuotaSpent, a.spent(want)}
		}
		if a.selects != nil && (a.limit != fleet.Budget{} || a.unfilled() != fleet.Budget{}) {
			touch = append(touch, a.key)
		}
	}
	if len(touch) > MaxTouches {
		return nil, &Refusal{fleet.ReasonQuotaSpent, fmt.Sprintf("%d quotas count group %s, at most %d can be kept at once: give it fewer of their labels", len(touch), name, MaxTouches)}
	}
	if l.unfilled == (fleet.Budget{}) {
		return touch, nil
	}
	others, no := l.leave(g, want)
	if no != nil {
		return nil, no
	}
	if others {
		touch = slices.Insert(touch, 0, fleet.ReservedAlloc) // a period sorts before all names
	}
	return touch, nil
}

// leave checks that enough stays free for the reservations of others. some reports whether
// others have unfilled reservations of the resources in want.
func (l *Ledger) leave(g *group, want fleet.Budget) (some bool, no *Refusal) {
	for _, p := range parts {
		taken := p.of(want)
		if taken == 0 || taken <= g.reserved(p) || p.unbounded(l) {
			continue
		}
		unfilled := p.of(l.unfilled) - g.unfilled(p)
		if unfilled == 0 {
			continue
		}
		free := p.of(l.free)
		if free-taken < unfilled {
			return false, &Refusal{fleet.ReasonReserved, l.reservedFor(p, g, free, taken)}
		}
		some = true
	}
	return some, nil
}

// reserved returns the largest unfilled reservation of a part that the group can draw on.
func (g *group) reserved(p part) int {
	most := 0
	for _, a := range g.accounts {
		most = max(most, p.of(a.unfilled()))
	}
	return most
}

// unfilled returns the sum of the unfilled reservations of a part that the group can draw
// on.
func (g *group) unfilled(p part) (sum int) {
	for _, a := range g.accounts {
		sum += p.of(a.unfilled())
	}
	return sum
}

// part is one component of a budget.
type part struct {
	of     func(fleet.Budget) int
	number func(int) string
	unit   string
}

var parts = [...]part{
	{func(b fleet.Budget) int { return b.Instances }, strconv.Itoa, "instances"},
	{func(b fleet.Budget) int { return b.MemoryMiB }, strconv.Itoa, "MiB"},
	{func(b fleet.Budget) int { return b.CPU }, cores, "cores"},
}

// cores formats hundredths of a core.
func cores(v int) string { return fmt.Sprintf("%d.%02d", v/100, v%100) }

// amount formats a number of a part with its unit.
func (p part) amount(v int) string { return p.number(v) + " " + p.unit }

// unbounded reports whether the part has no limit, because a usable node allows any number
// of instances.
func (p part) unbounded(l *Ledger) bool {
	_, bounded := l.Free()
	return !bounded && p.of(fleet.Budget{Instances: 1}) > 0
}

// spent says which parts of a limit are used up and what would help: "quota alice: 12 of 12
// instances are held: …".
func (a *account) spent(want fleet.Budget) string {
	title := a.title
	if a.selects == nil {
		title = "the quota of " + title
	}
	var texts []string
	remedy := "raise it, or wait until enough has ended"
	for _, p := range parts {
		held, limit, more := p.of(a.held), p.of(a.limit), p.of(want)
		if limit == 0 || held+more <= limit {
			continue
		}
		text := fmt.Sprintf("%s of %s are held", p.number(held), p.amount(limit))
		if held < limit {
			text += fmt.Sprintf(", %s more are requested", p.number(more))
		}
		if more > limit {
			remedy = "no wait helps: raise it, or request less"
		}
		texts = append(texts, text)
	}
	return title + ": " + strings.Join(texts, "; ") + ": " + remedy
}

// named bounds how many reservations a message lists.
const named = 3

// reservedFor lists the reservations of others that keep the free resources: "5120 MiB are
// reserved for group lobby; 5632 MiB are free, 1024 are requested: …".
func (l *Ledger) reservedFor(p part, g *group, free, taken int) string {
	var texts []string
	more, rest := 0, 0
	for _, a := range l.reserving {
		switch kept := p.of(a.unfilled()); {
		case kept == 0 || slices.Contains(g.accounts, a):
		case len(texts) < named:
			texts = append(texts, fmt.Sprintf("%s are reserved for %s", p.amount(kept), a.title))
		default:
			more, rest = more+1, rest+kept
		}
	}
	if more > 0 {
		texts = append(texts, fmt.Sprintf("%s for %d others", p.amount(rest), more))
	}
	return fmt.Sprintf("%s; %s are free, %s are requested: lower what is reserved, or add nodes", strings.Join(texts, ", "), p.amount(free), p.number(taken))
}
