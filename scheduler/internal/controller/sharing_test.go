package controller_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// shards returns the schedulers' shard records once each of n replicas has its share.
func (w *world) shards(replicas int) (held map[int]cluster.Shard) {
	w.t.Helper()
	await.That(w.t, "an even share", func() string {
		held = map[int]cluster.Shard{}
		load := map[string]int{}
		for n := range fleet.ShardCount {
			if s, err := store.Get(w.t.Context(), w.c, keys.Shard("scheduler", n)); err == nil {
				held[n] = s
				load[s.Replica]++
			}
		}
		even := len(held) == fleet.ShardCount && len(load) == replicas
		for _, n := range load {
			even = even && n >= fleet.ShardCount/replicas && n <= fleet.ShardCount/replicas+1
		}
		return await.Unless(even, "%v", load)
	})
	return held
}

func TestFourSchedulersPlaceAFleetWithoutGivingRoomOrAPortTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const nodes, each, groups, perGroup = 4, 50, 20, 11 // 220 wanted, room for 200
	for n := range nodes {
		w.node(fleet.NodeID(fmt.Sprintf("n%d", n)), each*10)
	}
	for r := range 4 {
		w.schedule(fmt.Sprintf("r%d", r))
	}
	held := w.shards(4)
	var ids []fleet.InstanceID
	for n := range groups {
		ids = append(ids, w.want(w.group(fleet.GroupName(fmt.Sprintf("group-%d", n)), nil), perGroup)...)
	}
	got := w.decided(ids)

	load, by := map[fleet.NodeID]int{}, map[string]int{}
	ports := map[string]fleet.InstanceID{}
	for _, i := range got {
		p := i.Placement
		load[p.Node]++
		at := fmt.Sprintf("%s:%d", p.Node, p.Port)
		if other, twice := ports[at]; twice {
			t.Errorf("%s and %s are both at %s", other, i.Intent.ID, at)
		}
		ports[at] = i.Intent.ID
		owner := held[fleet.ShardOf(i.Intent.Group)]
		if p.Epoch != owner.CreateRev {
			t.Errorf("%s was placed under epoch %d, its shard has %d", i.Intent.Name, p.Epoch, owner.CreateRev)
		}
		by[owner.Replica]++
	}
	for n, count := range load {
		if count > each {
			t.Errorf("%d on %s, which has room for %d", count, n, each)
		}
	}
	if len(got) != nodes*each {
		t.Errorf("%d were placed in the room of %d", len(got), nodes*each)
	}
	if len(by) != 4 {
		t.Errorf("placements by scheduler: %v, want of all four", by)
	}
}

func TestWhatASchedulerLeftBehindIsPlacedByAnotherAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.schedule("a")
	w.schedule("b")
	held := w.shards(2)
	group := fleet.GroupName("")
	for i := 0; held[fleet.ShardOf(group)].Replica != "a" || group == ""; i++ {
		group = fleet.GroupName(fmt.Sprintf("group-%d", i))
	}
	g := w.group(group, nil)
	id := w.want(g, 1)[0]
	w.await(id, "waiting", waiting(fleet.ReasonNoNodes))
	w.node("n1", 5)
	began := time.Now()
	stop()
	w.node("n2", 1000)
	i := w.await(id, "placed", placed)
	t.Logf("placed %v after a was told to stop", time.Since(began))
	if was := held[fleet.ShardOf(group)].CreateRev; i.Placement.Epoch <= was {
		t.Errorf("placed under epoch %d, a's was %d", i.Placement.Epoch, was)
	}
}
