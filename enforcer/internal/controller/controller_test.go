package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/schedule"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func minimum(n int) func(*fleet.Group) {
	return func(g *fleet.Group) { g.Spec.Scaling.Min = n }
}

func TestKeepsTheMinimum(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enforcer("a", plan.DefaultLimits())
	w.group("lobby", minimum(3))
	got := w.untilLiving("lobby", 3)
	names := map[string]bool{}
	for _, i := range got {
		names[i.Intent.Name] = true
		if i.Intent.Origin != fleet.OriginMinimum || i.Intent.Reason != fleet.ReasonBelowMinimum {
			t.Errorf("%s has origin %s and reason %s", i.Intent.Name, i.Intent.Origin, i.Intent.Reason)
		}
		if _, err := store.Get(t.Context(), w.client, keys.Plan(i.Intent.Plan)); err != nil {
			t.Errorf("the plan of %s: %v", i.Intent.Name, err)
		}
	}
	if !names["lobby-1"] || !names["lobby-2"] || !names["lobby-3"] {
		t.Errorf("names = %v, want lobby-1 to lobby-3", names)
	}
	w.change("lobby", minimum(1))
	if left := w.untilLiving("lobby", 1); left[0].Intent.Name != "lobby-1" {
		t.Errorf("%s was left, want the oldest", left[0].Intent.Name)
	}
}

func TestNothingStartsDuringMaintenanceOfAllGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enforcer("a", plan.DefaultLimits())
	on := cluster.Maintenance{Maintenance: fleet.Maintenance{On: true}}
	since := w.commit(store.Create(keys.Maintenance(), on))
	w.group("lobby", minimum(2))
	w.group("game", func(g *fleet.Group) { g.Spec.Scaling.Max = 1 })
	w.create("game")
	w.create("game")
	w.untilLiving("game", 1) // stops still happen
	on.On = false
	ended := w.commit(store.Replace(keys.Maintenance(), on, since))
	for _, i := range w.untilLiving("lobby", 2) {
		if i.Intent.CreateRev < ended {
			t.Errorf("%s was created at revision %d, before the maintenance ended at %d", i.Intent.Name, i.Intent.CreateRev, ended)
		}
	}
}

func TestAnOverlayChangesMinimumMaximumAndMaintenance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enforcer("a", plan.DefaultLimits())
	overlay := func(c schedule.Changes) schedule.Active {
		return schedule.Active{Overlays: []schedule.ActiveOverlay{{Name: "evening", On: true, Selector: map[string]string{"kind": "game"}, Changes: c}}}
	}
	game := func(n int) func(*fleet.Group) {
		return func(g *fleet.Group) { g.Spec.Scaling.Min, g.Spec.Labels = n, map[string]string{"kind": "game"} }
	}
	three, one, on := 3, 1, true
	w.group("lobby", minimum(1))
	w.group("game", game(1))
	w.untilLiving("game", 1)
	rev := w.commit(store.Create(keys.ActiveOverlays(), overlay(schedule.Changes{Min: &three})))
	w.untilLiving("game", 3)
	rev = w.commit(store.Replace(keys.ActiveOverlays(), overlay(schedule.Changes{Min: &three, Max: &one}), rev))
	w.untilLiving("game", 1)
	rev = w.commit(store.Replace(keys.ActiveOverlays(), overlay(schedule.Changes{Maintenance: &on}), rev))
	w.group("more", game(2))
	w.group("lobby2", minimum(2))
	w.untilLiving("lobby2", 2)
	ended := w.commit(store.Replace(keys.ActiveOverlays(), schedule.Active{}, rev))
	for _, i := range w.untilLiving("more", 2) {
		if i.Intent.CreateRev < ended {
			t.Errorf("%s was created at revision %d, before the overlay ended at %d", i.Intent.Name, i.Intent.CreateRev, ended)
		}
	}
	w.untilLiving("lobby", 1)
}

func TestAGroupWaitsUntilOneOfEachDependencyIsOnline(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enforcer("a", plan.DefaultLimits())
	w.group("proxy", func(g *fleet.Group) {
		g.Spec.Scaling.Min, g.Spec.DependsOn = 2, []fleet.GroupName{"lobby", "game"}
	})
	w.group("lobby", minimum(1))
	w.group("game", minimum(2))
	w.online(w.untilLiving("lobby", 1)[0].Intent.ID)
	second := w.untilLiving("game", 2)[1].Intent.ID
	w.place(second)
	ready := w.report(second, fleet.Online, fleet.ReasonReady)
	for _, i := range w.untilLiving("proxy", 2) {
		if i.Intent.CreateRev <= ready {
			t.Errorf("%s was created at revision %d, before its dependency was online at %d", i.Intent.Name, i.Intent.CreateRev, ready)
		}
	}
}

func TestManyAreMadeInSeveralTransactions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enforcer("a", plan.DefaultLimits())
	w.group("big", func(g *fleet.Group) { g.Spec.Scaling.Min, g.Spec.Scaling.Max = 300, 0 })
	w.untilLiving("big", 300)
	w.change("big", minimum(0))
	w.untilLiving("big", 0)
}

func TestStopBelowTheMinimumIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enforcer("a", plan.DefaultLimits())
	w.group("lobby", minimum(1))
	first := w.untilLiving("lobby", 1)[0].Intent.ID
	w.online(first)
	w.intent(first, stopped)
	order := w.untilOrder(first, fleet.OrderStop)
	if order.By != "alice" || order.Reason != fleet.ReasonStopRequested || order.Generation != 1 {
		t.Errorf("order = %+v, want what alice asked for", order)
	}
	if second := w.untilLiving("lobby", 1)[0]; second.Intent.ID == first || second.Intent.Name != "lobby-2" {
		t.Errorf("second = %+v, want another one under another name while the first stops", second.Intent)
	}
	w.intent(first, func(i *fleet.Intent) { i.Stop.Force = true })
	w.untilOrder(first, fleet.OrderKill)
}

func TestCrashesAreReplacedThenDelayedThenPaused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enforcer("a", plan.DefaultLimits())
	w.group("lobby", minimum(1))
	first := w.untilLiving("lobby", 1)[0].Intent.ID
	w.online(first)
	w.crash(first)
	second := w.untilLiving("lobby", 1)[0]
	if second.Intent.Replaces != first || second.Intent.Name != "lobby-1" {
		t.Errorf("second = %+v, want it to replace %s under its name", second.Intent, first)
	}
	w.online(second.Intent.ID)
	w.crash(second.Intent.ID)
	crashed, _ := w.view.Snapshot().Instances.Get(second.Intent.ID)
	third := w.untilLiving("lobby", 1)[0]
	if d := third.Intent.CreatedAt.Sub(crashed.FinishedAt()); d < plan.DefaultLimits().BackoffFirst {
		t.Errorf("the second crash was replaced after %v, want at least %v", d, plan.DefaultLimits().BackoffFirst)
	}
	w.crash(third.Intent.ID)
	s := w.until("a pause", func(s *view.Snapshot) bool { _, ok := s.CrashLoops.Get("lobby"); return ok })
	loop, _ := s.CrashLoops.Get("lobby")
	if loop.Level != 1 || loop.Crashes != 3 || len(living(s, "lobby")) != 0 {
		t.Errorf("loop = %+v with %d living, want level 1 after 3 crashes and nobody", loop, len(living(s, "lobby")))
	}
	w.change("lobby", func(g *fleet.Group) { g.Spec.Command = "serve better" })
	w.untilLiving("lobby", 1)
}

func TestAPauseEndsByItself(t *testing.T) {
	t.Parallel()
	l := plan.DefaultLimits()
	l.CrashLimit, l.PauseFirst, l.Quiet = 1, 200*time.Millisecond, 200*time.Millisecond
	w := newWorld(t)
	w.enforcer("a", l)
	w.group("lobby", minimum(1))
	w.crash(w.untilLiving("lobby", 1)[0].Intent.ID)
	w.until("a pause", func(s *view.Snapshot) bool { _, ok := s.CrashLoops.Get("lobby"); return ok })
	w.untilLiving("lobby", 1)
	w.until("the end of the crash loop", func(s *view.Snapshot) bool { _, ok := s.CrashLoops.Get("lobby"); return !ok })
}

func TestACrashedManualInstanceIsReplacedOnceAndKeepsItsOrigin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enforcer("a", plan.DefaultLimits())
	w.group("arena", minimum(0))
	first := w.create("arena")
	w.online(first)
	w.crash(first)
	second := w.untilLiving("arena", 1)[0]
	if second.Intent.Replaces != first || second.Intent.Origin != fleet.OriginManual {
		t.Errorf("second = %+v, want a manual one in place of %s", second.Intent, first)
	}
	if i, _ := w.view.Snapshot().Instances.Get(first); i.Intent.ReplacedBy != second.Intent.ID {
		t.Errorf("the crashed one does not name its successor: %+v", i.Intent)
	}
}

func TestAStaticInstanceComesBackAsItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.static()
	w.crash(id)
	s := w.until("the next generation", func(s *view.Snapshot) bool {
		i, ok := s.Instances.Get(id)
		return ok && i.Intent.Generation == 2
	})
	i, _ := s.Instances.Get(id)
	if i.Intent.Name != "world-1" || len(i.Intent.Crashes) != 1 {
		t.Errorf("intent = %+v, want world-1 that remembers a crash", i.Intent)
	}
}

func TestARestartIsANewGenerationOnceItHasEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enforcer("a", plan.DefaultLimits())
	w.group("arena", minimum(0))
	id := w.create("arena")
	w.online(id)
	w.intent(id, func(i *fleet.Intent) { stopped(i); i.RestartPending = true })
	w.untilOrder(id, fleet.OrderStop)
	w.report(id, fleet.Stopped, fleet.ReasonStopRequested)
	s := w.until("the next generation", func(s *view.Snapshot) bool {
		i, ok := s.Instances.Get(id)
		return ok && i.Intent.Generation == 2
	})
	i, _ := s.Instances.Get(id)
	if i.Intent.Desired != fleet.DesiredRunning || i.Intent.Reason != fleet.ReasonRestart || i.Intent.By != "alice" {
		t.Errorf("intent = %+v, want it running again because alice asked", i.Intent)
	}
}

func TestADeletedGroupStopsItsInstancesThenGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enforcer("a", plan.DefaultLimits())
	w.group("lobby", minimum(2))
	all := w.untilLiving("lobby", 2)
	running, unplaced := all[0].Intent.ID, all[1].Intent.ID
	w.online(running)
	w.change("lobby", func(g *fleet.Group) { g.Deleting = true })
	w.untilOrder(running, fleet.OrderStop)
	w.until("the unplaced one to go", func(s *view.Snapshot) bool { _, ok := s.Instances.Get(unplaced); return !ok })
	if _, ok := w.view.Snapshot().Groups.Get("lobby"); !ok {
		t.Fatal("the group went while an instance ran")
	}
	w.report(running, fleet.Stopped, fleet.ReasonStopRequested)
	s := w.until("the group to go", func(s *view.Snapshot) bool { _, ok := s.Groups.Get("lobby"); return !ok })
	if !w.gone(running) || !w.gone(unplaced) || s.Names.Len() != 0 || s.Orphans.Len() != 0 {
		t.Errorf("records are left:\n%s", dump(s))
	}
}

func TestFinishedRecordsGoWhenTheirTimeIsOver(t *testing.T) {
	t.Parallel()
	l := plan.DefaultLimits()
	l.KeepFor, l.PlanFor = 300*time.Millisecond, time.Millisecond
	w := newWorld(t)
	c, _ := w.enforcer("a", l)
	w.group("arena", minimum(0))
	id := w.create("arena")
	w.online(id)
	w.intent(id, stopped)
	w.untilOrder(id, fleet.OrderStop)
	w.report(id, fleet.Stopped, fleet.ReasonStopRequested)
	w.until("the records to go", func(s *view.Snapshot) bool { _, ok := s.Instances.Get(id); return !ok })
	if s := w.view.Snapshot(); !w.gone(id) || s.Names.Len() != 0 {
		t.Errorf("records are left:\n%s", dump(s))
	}
	c.queue.Add(sweep) // now instead of in a minute
	w.until("the plan to go", func(s *view.Snapshot) bool { return s.Plans.Len() == 0 })
}

func TestOnlyTheNewestRecordsAreKept(t *testing.T) {
	t.Parallel()
	l := plan.DefaultLimits()
	l.KeepRecords = 2
	w := newWorld(t)
	w.enforcer("a", l)
	w.group("arena", minimum(0))
	var ids []fleet.InstanceID
	for range 4 {
		id := w.create("arena")
		w.intent(id, stopped)
		ids = append(ids, id)
	}
	w.until("two records", func(s *view.Snapshot) bool { return s.Instances.Len() == 2 })
	for n, id := range ids {
		if _, ok := w.view.Snapshot().Instances.Get(id); ok != (n >= 2) {
			t.Errorf("record %d kept = %v", n, ok)
		}
	}
}

func TestAMissingGroupOrdersNothingButStopsAreCarriedOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.group("lobby", minimum(0))
	a, b := w.create("lobby"), w.create("lobby")
	w.online(a)
	w.online(b)
	g, _ := w.view.Snapshot().Groups.Get("lobby")
	w.commit(store.Remove(keys.Group("lobby"), g.ModRev))
	w.enforcer("a", plan.DefaultLimits())
	w.intent(a, stopped)
	w.untilOrder(a, fleet.OrderStop)
	if i, _ := w.view.Snapshot().Instances.Get(b); i.Order != nil || i.Intent.Desired != fleet.DesiredRunning {
		t.Errorf("the other one was touched: %+v", i)
	}
}

// apart returns two groups in shards of different enforcers.
func apart(a, b *Controller) (ofA, ofB fleet.GroupName) {
	for i := 0; ofA == "" || ofB == ""; i++ {
		name := fleet.GroupName(fmt.Sprintf("group-%d", i))
		if _, ok := a.replica.Owned().Fence(name); ok {
			ofA = name
		}
		if _, ok := b.replica.Owned().Fence(name); ok {
			ofB = name
		}
	}
	return ofA, ofB
}

// share waits until the enforcers share the shards evenly.
func (w *world) share(enforcers ...*Controller) {
	w.t.Helper()
	for _, c := range enforcers {
		await.That(w.t, "an even share", func() string {
			n := c.replica.Owned().Count()
			if n == fleet.ShardCount/len(enforcers) || n == fleet.ShardCount/len(enforcers)+1 {
				return ""
			}
			return fmt.Sprintf("%d shards\n%s", n, dump(w.view.Snapshot()))
		})
	}
}

// actions returns how many actions of a kind an enforcer has committed.
func actions(t *testing.T, c *Controller, k plan.Kind) float64 {
	t.Helper()
	return testutil.ToFloat64(c.metrics.actions.WithLabelValues(string(k)))
}

func TestEnforcersShareTheGroupsAndTakeOverFromOneThatCloses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, stop := w.enforcer("a", plan.DefaultLimits())
	w.share(a)
	b, _ := w.enforcer("b", plan.DefaultLimits())
	w.share(a, b)
	ofA, ofB := apart(a, b)
	w.group(ofA, minimum(1))
	w.group(ofB, minimum(2))
	first := w.untilLiving(ofA, 1)[0].Intent.ID
	w.untilLiving(ofB, 2)
	await.That(t, "each to have done its own part", func() string {
		ofOne, ofOther := actions(t, a, plan.Create), actions(t, b, plan.Create)
		if ofOne == 1 && ofOther == 2 {
			return ""
		}
		return fmt.Sprintf("a made %v and b %v\n%s", ofOne, ofOther, dump(w.view.Snapshot()))
	})
	stop()
	w.online(first)
	w.crash(first) // possibly while no enforcer runs
	w.until("a replacement", func(s *view.Snapshot) bool {
		i, ok := s.Instances.Get(first)
		return ok && i.Intent.ReplacedBy != ""
	})
	w.share(b)
}

func TestWhatAJoiningEnforcerIsGivenItLooksAtAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, _ := w.enforcer("a", plan.DefaultLimits())
	w.share(a)
	b, stop := w.enforcer("b", plan.DefaultLimits())
	w.share(a, b)
	_, ofB := apart(a, b)
	stop()
	w.share(a)
	w.group(ofB, minimum(1))
	i := w.untilLiving(ofB, 1)[0]
	w.online(i.Intent.ID)

	// The group does not change while b joins; the change was earlier.
	again, _ := w.enforcer("b", plan.DefaultLimits())
	w.share(a, again)
	before := actions(t, a, plan.Create)
	w.crash(i.Intent.ID)
	w.untilLiving(ofB, 1)
	await.That(t, "b to have replaced it", func() string {
		made := actions(t, again, plan.Create)
		if made == 1 {
			return ""
		}
		return fmt.Sprintf("b made %v\n%s", made, dump(w.view.Snapshot()))
	})
	if did := actions(t, a, plan.Create); did != before {
		t.Errorf("a made %v instances of a group that is b's", did-before)
	}
}

func TestAnOwnerThatLostItsShardActsOnlyUnderANewOwnership(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enforcer("a", plan.DefaultLimits())
	w.group("lobby", minimum(1))
	w.untilLiving("lobby", 1)
	shard := keys.Shard(Service, fleet.ShardOf("lobby"))
	held, err := store.Get(t.Context(), w.client, shard)
	if err != nil {
		t.Fatal(err)
	}
	w.commit(store.Remove(shard, held.ModRev))
	w.change("lobby", minimum(3))
	w.untilLiving("lobby", 3)
	now, err := store.Get(t.Context(), w.client, shard)
	if err != nil || now.CreateRev <= held.CreateRev {
		t.Errorf("the shard was created at %d, before at %d: %v", now.CreateRev, held.CreateRev, err)
	}
	for i := range w.view.Snapshot().GroupInstances("lobby") {
		if rev := i.Intent.CreateRev; rev > held.CreateRev && rev < now.CreateRev && i.Intent.Ordinal > 1 {
			t.Errorf("%s was made at %d, while nobody owned the shard", i.Intent.Name, rev)
		}
	}
}

// After a restore of etcd, the node reports a later generation than the placed one, and
// ignores orders and placements of earlier generations.
func TestAfterARestoreOrdersAndNextGenerationsAreAboveWhatTheNodeReports(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.static()
	i, _ := w.view.Snapshot().Instances.Get(id)
	later := *i.Status
	later.Generation = 5
	w.commit(store.Replace(keys.Status(id), later, i.Status.ModRev))
	w.intent(id, stopped)
	if o := w.untilOrder(id, fleet.OrderStop); o.Generation != 5 {
		t.Errorf("generation %d is ordered to stop, want 5", o.Generation)
	}
	i, _ = w.view.Snapshot().Instances.Get(id)
	later.State, later.Reason, later.FinishedAt = fleet.Stopped, fleet.ReasonStopRequested, time.Now().UTC()
	w.commit(store.Replace(keys.Status(id), later, i.Status.ModRev))
	w.until("generation 6", func(s *view.Snapshot) bool {
		i, ok := s.Instances.Get(id)
		return ok && i.Intent.Generation == 6 && i.NeedsPlacement()
	})
}

// After a restore of etcd, the intent has no placement, or its placement is on a different
// node from the one that runs it.
func TestWhatANodeRunsWithoutAPlacementIsStoppedThereWhenAskedTo(t *testing.T) {
	t.Parallel()
	for name, elsewhere := range map[string]bool{"it has no placement": false, "an earlier generation is placed elsewhere": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.enforcer("a", plan.DefaultLimits())
			w.group("lobby", minimum(0))
			id := w.create("lobby")
			if elsewhere {
				w.commit(store.Create(keys.Placement("gone", id), fleet.Placement{Instance: id, Group: "lobby", Node: "gone", Generation: 1}))
			}
			status := fleet.Status{Instance: id, Group: "lobby", Node: node, Generation: 2, State: fleet.Online, ChangedAt: time.Now().UTC()}
			w.commit(store.Create(keys.Status(id), status))
			w.intent(id, stopped)
			if o := w.untilOrder(id, fleet.OrderStop); o.Node != node || o.Generation != 2 {
				t.Errorf("generation %d is ordered to stop on %s, want 2 on %s", o.Generation, o.Node, node)
			}
			w.lose()
			w.commit(store.Create(keys.NodeDesired(node), fleet.NodeDesired{Node: node, Deleted: true, By: "alice"}))
			s := w.until("the node to be removed", func(s *view.Snapshot) bool { _, known := s.Nodes.Get(node); return !known })
			i, _ := s.Instances.Get(id)
			if i.Status.State != fleet.Stopped || i.Status.Reason != fleet.ReasonNodeDeleted || i.Status.Generation != 2 {
				t.Errorf("it has not ended with its node: %+v", i.Status)
			}
		})
	}
}
