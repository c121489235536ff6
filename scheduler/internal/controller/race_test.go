package controller_test

import (
	"log/slog"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/controller"
)

// rival starts a controller of a service of its own, so that it owns every shard. Between
// two rivals, only the comparisons prevent double use of resources.
func (w *world) rival(service string) *store.Replica {
	w.t.Helper()
	r := &store.Replica{Client: w.c, Self: cluster.Session{Service: service, Replica: "r"}, Claim: true, Log: slog.New(slog.DiscardHandler)}
	v := view.New(w.c, nil, controller.Kinds()...)
	ctl := controller.New(controller.Config{Store: w.c, View: v, Owned: r.Owned, Log: r.Log})
	r.Gained = func(*store.Ownership) { ctl.Wake() }
	w.run(v.Run)
	w.run(r.Run)
	w.run(ctl.Run)
	return r
}

// decided waits until each instance is placed or has a reason for waiting, and returns the
// placed ones.
func (w *world) decided(ids []fleet.InstanceID) (out []*fleet.Instance) {
	w.t.Helper()
	for _, id := range ids {
		if i := w.await(id, "decided", func(i *fleet.Instance) bool { return placed(i) || i.Pending != nil }); placed(i) {
			out = append(out, i)
		}
	}
	return out
}

func TestTwoSchedulersAtOnceNeverGiveTheSameRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("n1", 600)
	g := w.group("many", nil)
	w.rival("scheduler-a")
	w.rival("scheduler-b")
	var got []*fleet.Instance
	for range 8 { // several waves, so that the winner varies
		got = append(got, w.decided(w.want(g, 10))...)
	}
	ports := map[int]fleet.InstanceID{}
	for _, i := range got {
		if other, twice := ports[i.Placement.Port]; twice {
			t.Errorf("%s and %s both have port %d", other, i.Intent.ID, i.Placement.Port)
		}
		ports[i.Placement.Port] = i.Intent.ID
	}
	if len(got) != 60 {
		t.Errorf("%d were placed in the room of 60", len(got))
	}
}

func TestWhoLostItsShardsPlacesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stale := w.rival("scheduler-a")
	await.That(t, "all shards owned", func() string {
		n := stale.Owned().Count()
		return await.Unless(n == fleet.ShardCount, "%d", n)
	})
	// It loses its shards without noticing. Later it may claim them again under a newer
	// epoch.
	lost := stale.Owned().Epoch()
	shards, _, err := store.List(t.Context(), w.c, keys.Shards("scheduler-a"))
	if err != nil {
		t.Fatal(err)
	}
	var writes []store.Write
	for n := range fleet.ShardCount {
		writes = append(writes, store.Remove(keys.Shard("scheduler-a", n), shards[0].ModRev))
	}
	w.commit(writes...)
	w.node("n1", 1000)
	g := w.group("lobby", nil)
	id := w.want(g, 1)[0]
	w.schedule("b")
	i := w.await(id, "placed", placed)
	if i.Placement.Epoch <= lost {
		t.Errorf("placed under epoch %d, the lost one is %d", i.Placement.Epoch, lost)
	}
}
