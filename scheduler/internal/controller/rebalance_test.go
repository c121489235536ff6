package controller_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/fleet/score"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/spawn"
)

// online reports an instance as ready, as its agent does.
func (w *world) online(i *fleet.Instance) {
	w.t.Helper()
	w.commit(store.Create(keys.Status(i.Intent.ID), fleet.Status{
		Instance: i.Intent.ID, Group: i.Intent.Group, Node: i.Placement.Node, Generation: i.Intent.Generation, State: fleet.Online, Reason: fleet.ReasonReady, ChangedAt: time.Now().UTC(),
	}))
}

// succeed creates the replacement of a moving instance, as the enforcer does.
func (w *world) succeed(g *fleet.Group, e *fleet.Eviction) fleet.InstanceID {
	w.t.Helper()
	sp := spawn.New(w.view.Snapshot(), time.Now(), rand.New(rand.NewPCG(7, uint64(e.ModRev))))
	b := sp.Fresh(g, spawn.Cause{Origin: fleet.OriginMinimum, Reason: e.Reason, Message: e.Message}, e.Instance, nil)
	for _, txn := range sp.Txns([]spawn.Birth{b}, nil, nil, w.c.MaxOps()) {
		rev, err := w.c.Commit(w.t.Context(), txn)
		if err != nil {
			w.t.Fatal(err)
		}
		w.sync(rev)
	}
	return b.Intent.ID
}

func TestANewNodeIsFilledByMovesOfWhatNobodyPlaysOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule("a")
	w.schedule("b")
	w.shards(2)
	w.node("n1", 100)
	g := w.group("lobby", func(s *fleet.GroupSpec) {
		s.Rebalance = true
		s.Where.Profile = score.ProfilePack // without the move it would choose the fullest node
	})
	fixed := w.await(w.want(w.group("fixed", nil), 1)[0], "placed", placed)
	w.online(fixed)
	players := map[fleet.InstanceID]reports.InstanceReport{}
	for n, id := range w.want(g, 8) {
		w.online(w.await(id, "placed", placed))
		if n < 3 {
			players[id] = reports.InstanceReport{Players: 1}
		}
	}
	w.commit(store.Create(keys.Report("n1"), reports.Report{Node: "n1", Instances: players}))
	w.node("n2", 100)
	moved := map[fleet.InstanceID]bool{}
	for range 4 { // 90 and 0 become 50 and 40, which no move can improve
		e := w.evicted(1)[0]
		if players[e.Instance].Players > 0 || e.Instance == fixed.Intent.ID || moved[e.Instance] || e.Node != "n1" || e.To != "n2" || e.Reason != fleet.ReasonRebalanced {
			t.Fatalf("asked to move: %+v", e)
		}
		second := w.await(w.succeed(g, e), "placed", placed)
		if second.Placement.Node != "n2" {
			t.Fatalf("its replacement is on %s", second.Placement.Node)
		}
		moved[e.Instance], moved[second.Intent.ID] = true, true
		w.online(second)
		first, _ := w.view.Snapshot().Instances.Get(e.Instance)
		s := *first.Status
		s.State, s.Reason = fleet.Stopped, fleet.ReasonRebalanced
		w.commit(store.Replace(keys.Status(e.Instance), s, first.Status.ModRev), store.Remove(keys.Eviction(e.Instance), e.ModRev))
	}
}

func TestNothingIsMovedUnlessItsGroupAsksForIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule("a")
	w.node("n1", 100)
	for _, id := range w.want(w.group("lobby", nil), 8) {
		w.online(w.await(id, "placed", placed))
	}
	w.node("n2", 100)
	w.await(w.want(w.group("later", nil), 1)[0], "placed", placed)
	if w.view.Snapshot().Evictions.Len() > 0 {
		t.Errorf("asked to move: %+v", w.evicted(1)[0])
	}
}
