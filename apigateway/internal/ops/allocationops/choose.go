package allocationops

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/allocation"
	"github.com/orreryhq/orrery/libs/fleet/label"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Strategy decides among the instances that have room.
type Strategy string

// The strategies.
const (
	// Pack fills the fullest instance first, so that others become empty and can be stopped.
	Pack Strategy = "pack"
	// Spread takes the emptiest instance.
	Spread Strategy = "spread"
)

// The bounds of a request.
const (
	maxSelectors = 16
	maxSlots     = 10_000
)

// Selector selects groups, by name or by an expression over their labels.
type Selector struct {
	Group  fleet.GroupName
	Labels string
}

// Request asks for a claim.
type Request struct {
	// Selectors are tried in order: a later one counts only if no instance of the earlier ones has
	// room.
	Selectors []Selector
	// Slots is the number of players to reserve room for. 0 asks for a whole instance without
	// players.
	Slots int
	// TTLSeconds ends the claim after this time. 0 means when it is released or the run ends.
	TTLSeconds int
	Strategy   Strategy
	Note       string

	// Sees is false for groups that are treated as if they did not exist. Nil allows all.
	Sees func(fleet.GroupName) bool

	labels []label.LabelExpr // of Selectors, after validate
}

// validate returns everything that is wrong with r, as Invalid errors that name the field.
func (r *Request) sees(g fleet.GroupName) bool { return r.Sees == nil || r.Sees(g) }

func (r *Request) validate() []error {
	var p validate.Problems
	p.Check(len(r.Selectors) > 0, "selectors", "is missing: name at least one group, such as [{\"group\": \"arena\"}]")
	p.Check(len(r.Selectors) <= maxSelectors, "selectors", "must have at most %d entries", maxSelectors)
	r.labels = make([]label.LabelExpr, len(r.Selectors))
	for n, sel := range r.Selectors[:min(len(r.Selectors), maxSelectors)] {
		field := fmt.Sprintf("selectors[%d]", n)
		p.Check((sel.Group == "") != (sel.Labels == ""), field, "must have either group or labels")
		if sel.Labels != "" {
			var err error
			r.labels[n], err = label.ParseLabelExpr(sel.Labels)
			p.Check(err == nil, field+".labels", "%s", errs.MessageOf(err))
		}
	}
	p.Check(r.Slots >= 0 && r.Slots <= maxSlots, "slots", "must be between 0 (the whole instance) and %d, is %d", maxSlots, r.Slots)
	p.Check(r.TTLSeconds >= 0 && r.TTLSeconds <= allocation.MaxTTLSeconds, "ttlSeconds", "must be between 0 (until it is released) and %d, is %d", allocation.MaxTTLSeconds, r.TTLSeconds)
	r.Strategy = cmp.Or(r.Strategy, Pack)
	p.Check(validate.OneOf(r.Strategy, Pack, Spread), "strategy", "must be pack or spread, not %q", validate.Clip(string(r.Strategy)))
	p.Check(len(r.Note) <= allocation.MaxNote && !validate.HasControl(r.Note), "note", "must have at most %d bytes and no control characters", allocation.MaxNote)
	return p.List
}

// room is what an instance that takes players has left.
type room struct {
	instance *fleet.Instance
	used     int // players or claimed slots, whichever is more
	capacity int // 0 means unknown, which is no limit
	claims   *allocation.Claims
}

// takes reports whether a claim fits. slots is 0 for the whole instance.
func (r *room) takes(slots int) bool {
	if slots == 0 {
		return r.used == 0 && len(r.claims.Of(r.instance)) == 0
	}
	return r.capacity == 0 || r.used+slots <= r.capacity
}

// book is a snapshot together with the claims that a batch adds to it.
type book struct {
	snap  *view.Snapshot
	added map[fleet.InstanceID]*allocation.Claims
	// seen has the groups that were looked at, rooms their instances that take players.
	seen  map[fleet.GroupName]*members
	rooms map[fleet.InstanceID]*room
}

// members are the instances of a group that take players, and a count of all.
type members struct {
	rooms []*room
	tally tally
}

func newBook(s *view.Snapshot) *book {
	return &book{s, map[fleet.InstanceID]*allocation.Claims{}, map[fleet.GroupName]*members{}, map[fleet.InstanceID]*room{}}
}

// claimsOf returns the claims on an instance, including added ones. It may be nil.
func (b *book) claimsOf(id fleet.InstanceID) *allocation.Claims {
	if c, ok := b.added[id]; ok {
		return c
	}
	c, _ := b.snap.Claims.Get(id)
	return c
}

// fill sets what is left of an instance.
func (b *book) fill(r *room) {
	i := r.instance
	r.used, r.capacity, r.claims = 0, b.planned(i), b.claimsOf(i.Intent.ID)
	if report, ok := b.snap.Reports.Get(i.Node()); ok {
		told := report.Instances[i.Intent.ID]
		r.used, r.capacity = told.Players, cmp.Or(told.MaxPlayers, r.capacity)
	}
	r.used = max(r.used, r.claims.Slots(i, r.capacity))
}

// planned returns the number of players for which an instance was made; 0 when unknown.
func (b *book) planned(i *fleet.Instance) int {
	if p, ok := b.snap.Plans.Get(i.Intent.Plan); ok {
		return p.Plan.MaxPlayers
	}
	return 0
}

// membersOf returns the instances of a group. A batch looks at each group once.
func (b *book) membersOf(g *fleet.Group) *members {
	if m, ok := b.seen[g.Name]; ok {
		return m
	}
	m := &members{tally: tally{groups: 1}}
	b.seen[g.Name] = m
	maintained := b.snap.MaintenanceOf(g).On
	for i := range b.snap.GroupInstances(g.Name) {
		switch {
		case i.Terminal():
		case maintained || !i.TakesPlayers():
			if i.State() != fleet.Online {
				m.tally.starting++
			}
			m.tally.measure(b.planned(i))
		default:
			r := &room{instance: i}
			b.fill(r)
			m.rooms, b.rooms[i.Intent.ID] = append(m.rooms, r), r
			m.tally.ready++
			m.tally.measure(r.capacity)
		}
	}
	return m
}

// choose returns the instance for a request. Invalid when no instance of the selected groups could ever
// have so many slots, Conflict when none has them now; the message says why.
func (b *book) choose(r *Request) (*fleet.Instance, error) {
	var all tally
	for n := range r.Selectors {
		var best *room
		for g := range b.groups(r, n) {
			m := b.membersOf(g)
			all.add(m.tally)
			for _, left := range m.rooms {
				if left.takes(r.Slots) && (best == nil || r.Strategy.prefers(left, best)) && left.claims.Takes(allocation.Claim{Note: r.Note}) {
					best = left
				}
			}
		}
		if best != nil {
			return best.instance, nil
		}
	}
	return nil, all.refusal(r)
}

// groups yields the groups that a selector selects.
func (b *book) groups(r *Request, n int) func(func(*fleet.Group) bool) {
	return func(yield func(*fleet.Group) bool) {
		if name := r.Selectors[n].Group; name != "" {
			if g, ok := b.snap.Groups.Get(name); ok && !g.Deleting && r.sees(name) {
				yield(g)
			}
			return
		}
		for _, g := range b.snap.Groups.All() {
			if !g.Deleting && r.sees(g.Name) && r.labels[n].Matches(b.snap.Whole(g).Spec.Labels) && !yield(g) {
				return
			}
		}
	}
}

// prefers reports whether a is a better choice than b. The older instance wins a tie.
func (s Strategy) prefers(a, b *room) bool {
	by := cmp.Compare(b.used, a.used)
	if s == Spread {
		by = -by
	}
	x, y := a.instance.Intent, b.instance.Intent
	return cmp.Or(by, cmp.Compare(x.CreateRev, y.CreateRev), strings.Compare(string(x.ID), string(y.ID))) < 0
}

// tally counts what a search saw, for its refusal.
type tally struct {
	groups, ready, starting int
	// largest is the capacity of the largest instance; unlimited is set if one has no known capacity.
	largest   int
	unlimited bool
}

// measure notes the capacity of an instance.
func (t *tally) measure(capacity int) {
	t.largest = max(t.largest, capacity)
	t.unlimited = t.unlimited || capacity == 0
}

func (t *tally) add(o tally) {
	t.groups, t.ready, t.starting = t.groups+o.groups, t.ready+o.ready, t.starting+o.starting
	t.largest, t.unlimited = max(t.largest, o.largest), t.unlimited || o.unlimited
}

// refusal says why no instance was chosen.
func (t tally) refusal(r *Request) error {
	switch {
	case t.groups == 0:
		return errs.New(errs.Conflict, "no group matches the selectors")
	case r.Slots > t.largest && !t.unlimited && t.ready > 0:
		return errs.Field("slots", "is %d, but no instance of the selected groups has more than %d: ask for fewer, or raise maxPlayers", r.Slots, t.largest)
	case r.Slots == 0:
		return errs.New(errs.Conflict, "no whole instance is free: %s; retry later, or raise the group's minimum", t)
	}
	return errs.New(errs.Conflict, "no instance has %d free slots: %s; retry later, or raise the group's minimum", r.Slots, t)
}

// String describes the selected instances.
func (t tally) String() string {
	return fmt.Sprintf("the selected groups have %d ready instances and %d that are about to be ready", t.ready, t.starting)
}
