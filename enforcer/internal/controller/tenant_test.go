package controller

import (
	"fmt"
	"testing"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Two enforcers give numbers to many groups at the same time.
func TestEachStaticGroupHasItsOwnNumberForever(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, stopA := w.enforcer("a", plan.DefaultLimits())
	b, _ := w.enforcer("b", plan.DefaultLimits())
	w.share(a, b)
	const groups = 20
	for n := range groups {
		w.group(fleet.GroupName(fmt.Sprintf("world-%d", n)), func(g *fleet.Group) { g.Spec.Static.Enabled = true })
	}
	w.group("lobby", minimum(1))
	numbered := func(s *view.Snapshot) map[int]fleet.GroupName {
		all := map[int]fleet.GroupName{}
		for name, tenant := range s.Tenants.All() {
			if other, twice := all[tenant.Number]; twice || tenant.Number < 1 || tenant.Number > groups {
				t.Fatalf("%s has the number %d, and so has %q", name, tenant.Number, other)
			}
			all[tenant.Number] = name
		}
		return all
	}
	w.until("numbers", func(s *view.Snapshot) bool { return len(numbered(s)) == groups })
	before, _ := w.view.Snapshot().Tenants.Get("world-0")
	w.change("world-0", func(g *fleet.Group) { g.Deleting = true })
	w.until("the deletion", func(s *view.Snapshot) bool { _, there := s.Groups.Get("world-0"); return !there })
	stopA() // the next owner finds the numbers
	w.group("world-0", func(g *fleet.Group) { g.Spec.Static.Enabled = true })
	w.group("new", func(g *fleet.Group) { g.Spec.Static.Enabled = true })
	s := w.until("the number of a new group", func(s *view.Snapshot) bool { _, there := s.Tenants.Get("new"); return there })
	if after, _ := s.Tenants.Get("world-0"); *after != *before {
		t.Errorf("the group has %+v, had %+v", after, before)
	}
	if last, _ := s.Tenants.Get("new"); last.Number != groups+1 {
		t.Errorf("the new group has %+v", last)
	}
	if _, there := s.Tenants.Get("lobby"); there {
		t.Error("a group that is not static has a number")
	}
}
