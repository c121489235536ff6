package controller

import (
	"slices"
	"testing"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

func TestWhatWaitsFollowsWhatAParentAsksOfNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.group("servers", func(g *fleet.Group) { g.Spec.Where.Nodes = []fleet.NodeID{"away"} })
	w.group("proxies", func(g *fleet.Group) { g.Spec.Parent = "servers"; g.Spec.Where.Nodes = nil })
	w.group("lobby", func(g *fleet.Group) { g.Spec.Parent = "proxies"; g.Spec.Where.Nodes = nil; g.Spec.Scaling.Min = 1 })
	w.enforcer("a", plan.DefaultLimits())

	generation := func(n int64) func(*view.Snapshot) bool {
		return func(s *view.Snapshot) bool {
			for _, i := range s.Instances.All() {
				return i.Intent.Group == "lobby" && i.Intent.Generation == n
			}
			return false
		}
	}
	w.until("an instance that waits", generation(1))
	w.change("servers", func(g *fleet.Group) { g.Spec.Where.Nodes = []fleet.NodeID{node} })
	s := w.until("the instance made anew", generation(2))
	for _, i := range s.Instances.All() {
		if p, ok := s.Plans.Get(i.Intent.Plan); !ok || !slices.Equal(p.Plan.Where.Nodes, []fleet.NodeID{node}) {
			t.Errorf("it asks of nodes: %+v", p)
		}
	}
}

func TestGroupsBelowThoseThatChangedAreLookedAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, parent := range map[fleet.GroupName]fleet.GroupName{"servers": "", "proxies": "servers", "lobby": "proxies", "arena": "", "duel": "arena"} {
		w.group(name, func(g *fleet.Group) { g.Spec.Parent = parent })
	}
	for _, c := range []struct{ changed, want []fleet.GroupName }{
		{nil, nil},
		{[]fleet.GroupName{"servers"}, []fleet.GroupName{"lobby", "proxies"}},
		{[]fleet.GroupName{"servers", "proxies", "arena"}, []fleet.GroupName{"duel", "lobby"}}, // proxies is queued in any case
		{[]fleet.GroupName{"lobby"}, nil},
	} {
		changed := map[fleet.GroupName]bool{}
		for _, name := range c.changed {
			changed[name] = true
		}
		if got := slices.Sorted(below(w.view.Snapshot(), changed)); !slices.Equal(got, c.want) {
			t.Errorf("below %v are %v, want %v", c.changed, got, c.want)
		}
	}
}

func TestACommandThatDoesNotExistIsTriedAgainWhenATemplateIsPublished(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ref := content.TemplateRef{Group: "default", Name: "lobby"}
	for _, digest := range []string{"one", "two"} {
		w.commit(store.Create(keys.TemplateVersion(ref, digest), content.TemplateVersion{TemplateRef: ref, Digest: digest}))
	}
	first := w.commit(store.Create(keys.TemplateHead(ref), content.TemplateHead{TemplateRef: ref, Digest: "one"}))
	w.enforcer("a", plan.DefaultLimits())
	w.group("lobby", func(g *fleet.Group) {
		g.Spec.Scaling.Min, g.Spec.Templates.AllOf = 1, []content.TemplateLayer{{TemplateRef: ref}}
	})
	broken := w.untilLiving("lobby", 1)[0].Intent.ID
	w.place(broken)
	w.report(broken, fleet.Failed, fleet.ReasonCommandMissing)
	w.group("other", func(g *fleet.Group) { g.Spec.Scaling.Min = 1 })
	w.untilLiving("other", 1) // proves that the enforcer has processed the earlier changes
	if n := len(living(w.view.Snapshot(), "lobby")); n != 0 {
		t.Fatalf("%d instances were started though nothing has changed", n)
	}
	w.commit(store.Replace(keys.TemplateHead(ref), content.TemplateHead{TemplateRef: ref, Digest: "two"}, first))
	if i := w.untilLiving("lobby", 1)[0]; i.Intent.ID == broken {
		t.Errorf("living: %+v", i.Intent)
	}
}
