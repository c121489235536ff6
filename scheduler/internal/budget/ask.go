package budget

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Refusal says why an instance may not be placed anywhere now.
type Refusal struct {
	// Reason is ReasonQuotaSpent or ReasonReserved.
	Reason  fleet.Reason
	Message string
}

// Ask says whether one more instance of a group that takes r may be placed. With
// no refusal, touch are the quota-allocs records, in order, that the placement's
// transaction must compare and renew; they may be none.
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
	if l.unfilled == (fleet.Budget{}) {
		return touch, nil
	}
	bound, no := l.leave(g, want)
	if no != nil {
		return nil, no
	}
	touch = append(touch, bound...)
	slices.Sort(touch)
	return slices.Compact(touch), nil
}

// leave makes sure that what is taken leaves others what is reserved for them, and
// returns the keys of the reservations that it counted on.
func (l *Ledger) leave(g *group, want fleet.Budget) (touch []string, no *Refusal) {
	for _, p := range parts {
		taken := p.of(want)
		if taken == 0 || taken <= g.reserved(p) || p.unbounded(l) {
			continue
		}
		others, unfilled := l.others(g, p)
		if unfilled == 0 {
			continue
		}
		free := p.of(l.free)
		if free-taken < unfilled {
			return nil, &Refusal{fleet.ReasonReserved, reservedFor(p, others, free, taken)}
		}
		for _, a := range others {
			touch = append(touch, a.key)
		}
	}
	return touch, nil
}

// reserved is the most that any one of a group's reservations has left of a part.
func (g *group) reserved(p part) int {
	most := 0
	for _, a := range g.accounts {
		most = max(most, p.of(a.unfilled()))
	}
	return most
}

// others are the accounts that do not count a group and have something of a part
// reserved that is not filled, with the sum of it.
func (l *Ledger) others(g *group, p part) (out []*account, unfilled int) {
	for _, a := range l.reserving {
		if u := p.of(a.unfilled()); u > 0 && !slices.Contains(g.accounts, a) {
			out, unfilled = append(out, a), unfilled+u
		}
	}
	return out, unfilled
}

// part is one part of a budget.
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

// cores writes hundredths of a core.
func cores(v int) string { return fmt.Sprintf("%d.%02d", v/100, v%100) }

// amount is a number of a part with its unit.
func (p part) amount(v int) string { return p.number(v) + " " + p.unit }

// unbounded reports whether there is no end of a part, because some node bounds no instances.
func (p part) unbounded(l *Ledger) bool {
	_, bounded := l.Free()
	return !bounded && p.of(fleet.Budget{Instances: 1}) > 0
}

// spent says which part of a limit is spent: "quota alice: 12 of 12 instances are held".
func (a *account) spent(want fleet.Budget) string {
	title := a.title
	if a.selects == nil {
		title = "the quota of " + title
	}
	var texts []string
	for _, p := range parts {
		held, limit, more := p.of(a.held), p.of(a.limit), p.of(want)
		if limit == 0 || held+more <= limit {
			continue
		}
		text := fmt.Sprintf("%s of %s are held", p.number(held), p.amount(limit))
		if held < limit {
			text += fmt.Sprintf(", %s more are asked for", p.number(more))
		}
		texts = append(texts, text)
	}
	return title + ": " + strings.Join(texts, "; ")
}

// reservedFor says for whom what is free is kept: "5120 MiB are reserved for group
// lobby; 5632 MiB are free, 1024 are asked for".
func reservedFor(p part, others []*account, free, taken int) string {
	var texts []string
	for _, a := range others {
		texts = append(texts, fmt.Sprintf("%s are reserved for %s", p.amount(p.of(a.unfilled())), a.title))
	}
	return fmt.Sprintf("%s; %s are free, %s are asked for", strings.Join(texts, ", "), p.amount(free), p.number(taken))
}
