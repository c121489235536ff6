package controller

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// players reports the players of instances as their agent does. All others of the node are empty.
func (w *world) players(of map[fleet.InstanceID]int) {
	w.t.Helper()
	r := reports.Report{Node: node, Instances: map[fleet.InstanceID]reports.InstanceReport{}}
	for id, n := range of {
		r.Instances[id] = reports.InstanceReport{Players: n, PlayersKnown: true}
	}
	var rev int64
	if have, ok := w.view.Snapshot().Reports.Get(node); ok {
		rev = have.ModRev
	}
	w.commit(store.Replace(keys.Report(node), r, rev))
}

// scales returns an edit for a group that scales by its load between 1 and 4 instances.
func scales(cooldown int) func(*fleet.Group) {
	return func(g *fleet.Group) {
		g.Spec.Scaling.Min, g.Spec.Scaling.Max, g.Spec.Players.Max = 1, 4, 10
		g.Spec.Scaling.CooldownSeconds, g.Spec.Scaling.DownAfterSeconds = cooldown, 0
	}
}

func (w *world) untilScaled(what string, ok func(*scaling.Decision) bool) *scaling.Decision {
	w.t.Helper()
	s := w.until(what, func(s *view.Snapshot) bool {
		d, _ := s.Scalings.Get("lobby")
		return ok(d)
	})
	d, _ := s.Scalings.Get("lobby")
	return d
}

func TestAGroupFollowsItsLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enforcer("a", plan.DefaultLimits())
	w.group("lobby", scales(0))
	first := w.untilLiving("lobby", 1)[0].Intent.ID
	w.online(first)
	w.players(map[fleet.InstanceID]int{first: 20})
	all := w.untilLiving("lobby", 3) // 20 players on 30 slots
	d := w.untilScaled("a decision", func(d *scaling.Decision) bool { return d != nil })
	if d.From != 1 || d.To != 3 || d.Target != 3 || d.Reason != fleet.ReasonFullness || d.Message == "" || d.At.IsZero() {
		t.Errorf("the decision is %+v, want from 1 to 3 because of the fullness", d)
	}
	for _, i := range all {
		if i.Intent.ID != first && (i.Intent.Reason != fleet.ReasonFullness || i.Intent.Message != d.Message || i.Intent.Origin != fleet.OriginMinimum) {
			t.Errorf("%s was started because of %s, %q", i.Intent.Name, i.Intent.Reason, i.Intent.Message)
		}
		w.online(i.Intent.ID)
	}
	w.players(map[fleet.InstanceID]int{first: 1})
	if left := w.untilLiving("lobby", 1)[0]; left.Intent.ID != first {
		t.Errorf("%s is left, want the one with players", left.Intent.Name)
	}
	d = w.untilScaled("a decision to stop", func(d *scaling.Decision) bool { return d.To == 1 })
	if d.From != 3 || d.Target != 0 || d.Reason != fleet.ReasonIdle {
		t.Errorf("the decision is %+v, want from 3 to 1 because the others are idle", d)
	}
	w.change("lobby", func(g *fleet.Group) { g.Spec.Scaling.Mode = fleet.ScalingStatic })
	w.untilScaled("the end of the decision", func(d *scaling.Decision) bool { return d == nil })
}

func TestTheCooldownSurvivesAFailover(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, stop := w.enforcer("a", plan.DefaultLimits())
	w.group("lobby", scales(3600))
	first := w.untilLiving("lobby", 1)[0].Intent.ID
	w.online(first)
	w.players(map[fleet.InstanceID]int{first: 8})
	for _, i := range w.untilLiving("lobby", 2) {
		w.online(i.Intent.ID)
	}
	before := w.untilScaled("a decision", func(d *scaling.Decision) bool { return d != nil })
	stop()
	w.players(map[fleet.InstanceID]int{first: 25})
	w.enforcer("b", plan.DefaultLimits())
	w.change("lobby", func(g *fleet.Group) { g.Spec.Scaling.Min = 3 }) // the minimum does not wait
	w.untilLiving("lobby", 3)
	if d := w.untilScaled("the decision", func(d *scaling.Decision) bool { return d != nil }); d.ModRev != before.ModRev {
		t.Errorf("there is another decision within the cooldown: %+v after %+v", d, before)
	}
}

func TestAnExplicitScaleResetsTheTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.group("lobby", scales(3600))
	g, _ := w.view.Snapshot().Groups.Get("lobby")
	w.commit(store.Create(keys.Scaling("lobby"), scaling.Decision{
		Group: "lobby", Target: 3, From: 1, To: 3, At: time.Now().UTC(), Reason: fleet.ReasonFullness, Message: "because", ScaledAt: g.ScaledAt,
	}))
	w.enforcer("a", plan.DefaultLimits())
	w.untilLiving("lobby", 3)
	w.change("lobby", func(g *fleet.Group) { g.ScaledAt = time.Now().UTC() })
	w.untilLiving("lobby", 1)
}

func TestADecisionGoesWithItsGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.group("lobby", scales(0))
	w.commit(store.Create(keys.Scaling("lobby"), scaling.Decision{Group: "lobby", From: 2, To: 1, At: time.Now().UTC(), Reason: fleet.ReasonIdle, Message: "because"}))
	w.enforcer("a", plan.DefaultLimits())
	w.untilLiving("lobby", 1)
	w.change("lobby", func(g *fleet.Group) { g.Deleting = true })
	w.untilScaled("the end of the decision", func(d *scaling.Decision) bool { return d == nil })
}

func TestAnInstanceIsEmptySinceItsLastPlayerLeft(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	report := func(players map[fleet.InstanceID]int) *reports.Report {
		r := &reports.Report{Instances: map[fleet.InstanceID]reports.InstanceReport{}}
		for id, n := range players {
			r.Instances[id] = reports.InstanceReport{Players: n}
		}
		return r
	}
	e := newEmpties()
	batch := func(rev int64, relisted bool, changes ...view.Change) *view.Batch {
		return &view.Batch{After: &view.Snapshot{Rev: rev}, Relisted: relisted, Changes: changes}
	}
	check := func(rule string, rev int64, id fleet.InstanceID, now, want int) {
		t.Helper()
		if got := e.of(&view.Snapshot{Rev: rev}, id, at(now)); !got.Equal(at(want)) {
			t.Errorf("%s: empty since %d, want %d", rule, got.Unix(), want)
		}
	}
	e.heard(batch(1, false), at(10))
	check("what was before the first list is unknown", 1, "a", 20, 10)
	e.heard(batch(2, false, view.Change{Kind: view.KindReport, Before: report(map[fleet.InstanceID]int{"a": 2}), After: report(map[fleet.InstanceID]int{"a": 0})}), at(30))
	check("the last player left", 2, "a", 40, 30)
	check("a newer snapshot may say that the last player just left", 3, "a", 40, 40)
	e.heard(batch(4, false, view.Change{Kind: view.KindReport, Before: report(map[fleet.InstanceID]int{"a": 1}), After: nil}), at(50))
	check("a node's report ended", 4, "a", 60, 50)
	e.heard(batch(5, true), at(70))
	check("after an interruption of the watch", 5, "a", 80, 70)
	if len(e.left) != 0 {
		t.Errorf("%d instances are left", len(e.left))
	}
}
