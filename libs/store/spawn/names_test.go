package spawn

import (
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestAStaticGroupGivesItsNamesInOrder(t *testing.T) {
	c := newCluster(t)
	g, snap := c.group(func(g *fleet.Group) {
		g.Spec.Static = fleet.Static{Enabled: true, InstanceNames: []string{"Hub", "g-7", "arena"}}
	})
	snap, ids := c.fresh(g, snap, 2)
	for n, want := range []string{"Hub", "g-7"} {
		if i := c.get(snap, ids[n]); i.Intent.Name != want || i.Intent.Ordinal != n+1 {
			t.Errorf("instance %d is %+v", n, i.Intent)
		}
		if i, ok := snap.Find(want); !ok || i.Intent.ID != ids[n] {
			t.Errorf("%s is not found by its name", want)
		}
	}
	snap = c.end(c.get(snap, ids[0]), fleet.Crashed)
	s := New(snap, noon, random(1))
	again, err := s.Again(g, c.get(snap, ids[0]), byMinimum)
	if err != nil || again.Intent.Name != "Hub" {
		t.Errorf("again: %+v, %v", again.Intent, err)
	}
	if err := s.Named(g); err != nil {
		t.Error(err)
	}
	if b := s.Fresh(g, byMinimum, "", nil); b.Intent.Name != "arena" || b.Intent.Ordinal != 3 {
		t.Errorf("the third is %+v", b.Intent)
	}
	if err := s.Named(g); errs.KindOf(err) != errs.Conflict {
		t.Errorf("all names are given, but Named returns %v", err)
	}
}

func TestAnInstanceFromBeforeTheNamesKeepsItsNameAndTakesItsPlace(t *testing.T) {
	c := newCluster(t)
	g, snap := c.group(func(g *fleet.Group) { g.Spec.Static.Enabled = true })
	snap, ids := c.fresh(g, snap, 1)
	named := *g
	named.Spec.Static.InstanceNames = []string{"hub", "arena"}
	c.write(store.Replace(keys.Group(g.Name), named, g.ModRev))
	snap = c.end(c.get(snap, ids[0]), fleet.Crashed)
	s := New(snap, noon, random(1))
	if b, err := s.Again(&named, c.get(snap, ids[0]), byMinimum); err != nil || b.Intent.Name != "g-1" {
		t.Errorf("again: %+v, %v", b.Intent, err)
	}
	if b := s.Fresh(&named, byMinimum, "", nil); b.Intent.Name != "arena" {
		t.Errorf("the new one is %s", b.Intent.Name)
	}
	if s.Named(&named) == nil {
		t.Error("a third name is free")
	}
}

func TestTwoGroupsNeverGetTheSameName(t *testing.T) {
	c := newCluster(t)
	named := func(g *fleet.Group) {
		g.Spec.Static = fleet.Static{Enabled: true, InstanceNames: []string{"hub", "lobby-1"}}
	}
	g, _ := c.group(named)
	other := *g
	other.Name, other.Spec.Static.InstanceNames = "other", []string{"HUB"}
	lobby := fleet.Group{Name: "lobby", Revision: 1, Spec: fleet.DefaultSpec()}
	snap := c.write(store.Create(keys.Group("other"), other), store.Create(keys.Group("lobby"), lobby))
	late := New(snap, noon, random(7))
	stale := late.Txns([]Birth{late.Fresh(&other, byMinimum, "", nil)}, nil, nil, c.client.MaxOps())
	snap, _ = c.fresh(g, snap, 2)
	for _, txn := range stale {
		if _, err := c.client.Commit(t.Context(), txn); err == nil {
			t.Error("a second instance got the name hub")
		}
	}
	s := New(snap, noon, random(8))
	if s.Named(&other) == nil {
		t.Error("the name of another group's instance is free")
	}
	if b := s.Fresh(&lobby, byMinimum, "", nil); b.Intent.Name != "lobby-2" {
		t.Errorf("the instance of lobby is %s", b.Intent.Name)
	}
}
