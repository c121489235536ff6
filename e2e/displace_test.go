package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/enforcer"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler"
)

// desk runs scheduler and enforcer over an etcd with fake agents, which start and stop
// instances as ordered within a moment. There are no processes.
type desk struct {
	t *testing.T
	c *store.Client
	v *view.View

	mu sync.Mutex
	// least is the lowest number of serving instances since it was last set.
	least int
	// asked maps the instances that were asked to leave to their evictions.
	asked map[fleet.InstanceID]fleet.Eviction
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t: t, c: storetest.New(t), asked: map[fleet.InstanceID]fleet.Eviction{}}
	d.v = view.New(d.c, nil)
	look := make(chan struct{}, 1)
	d.v.Subscribe(func(b view.Batch) {
		d.hear(b)
		select {
		case look <- struct{}{}:
		default:
		}
	})
	log, services := slog.New(slog.DiscardHandler), view.New(d.c, nil)
	s, err := scheduler.New(scheduler.Config{Store: d.c, View: services, Replica: "s", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	e, err := enforcer.New(enforcer.Config{Store: d.c, View: services, Replica: "e", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{d.v.Run, services.Run, s.Run, e.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-look:
				d.agents(ctx)
			}
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return d
}

// hear records evictions and the number of serving instances.
func (d *desk) hear(b view.Batch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range b.Changes {
		if e, ok := b.Changes[i].After.(*fleet.Eviction); ok {
			d.asked[e.Instance] = *e
		}
	}
	serving := 0
	for _, i := range b.After.Instances.All() {
		if i.State() == fleet.Online {
			serving++
		}
	}
	d.least = min(d.least, serving)
}

// agents starts placed instances and stops ordered ones.
func (d *desk) agents(ctx context.Context) {
	for id, i := range d.v.Snapshot().Instances.All() {
		if !i.HoldsNode() {
			continue
		}
		var rev int64
		now := time.Now().UTC()
		s := fleet.Status{Instance: id, Group: i.Intent.Group, Node: i.Placement.Node, Generation: i.Placement.Generation, State: fleet.Online, Reason: fleet.ReasonReady, OnlineAt: now, ChangedAt: now}
		if have := i.Status; have != nil {
			rev = have.ModRev
		}
		switch o := i.Order; {
		case o != nil && o.Generation == i.Placement.Generation && (o.Action == fleet.OrderStop || o.Action == fleet.OrderKill):
			s.State, s.Reason, s.FinishedAt = fleet.Stopped, o.Reason, now
		case i.Status != nil && i.Status.Generation == i.Placement.Generation:
			continue
		}
		// A conflict shows up in the view and is handled in the next round.
		_, _ = d.c.Commit(ctx, store.Txn{Writes: []store.Write{store.Replace(keys.Status(id), s, rev)}})
	}
}

func (d *desk) write(writes ...store.Write) {
	d.t.Helper()
	rev, err := d.c.Commit(d.t.Context(), store.Txn{Writes: writes})
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.v.WaitRev(d.t.Context(), rev); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) node(id fleet.NodeID, memory int) {
	d.t.Helper()
	d.write(
		store.Create(keys.Node(id), fleet.Node{ID: id, Capacity: fleet.Resources{MemoryMiB: memory}, Runtimes: []fleet.NodeRuntime{{Name: fleet.RuntimeProcess, Offered: true}}}),
		store.Create(keys.NodeSession(id), fleet.NodeSession{Node: id}))
}

// group creates a group with n instances of 10 MiB each.
func (d *desk) group(name fleet.GroupName, n int, change func(*fleet.GroupSpec)) {
	d.t.Helper()
	g := fleet.Group{Name: name, Revision: 1, Spec: fleet.DefaultSpec()}
	g.Spec.Resources, g.Spec.Scaling.Min, g.Spec.Scaling.Max = fleet.Resources{MemoryMiB: 10}, n, 0
	change(&g.Spec)
	d.write(store.Create(keys.Group(name), g))
}

// serving returns a group's online instances.
func (d *desk) serving(g fleet.GroupName) (out []*fleet.Instance) {
	for i := range d.v.Snapshot().GroupInstances(g) {
		if i.State() == fleet.Online {
			out = append(out, i)
		}
	}
	return out
}

func (d *desk) awaitServing(g fleet.GroupName, n int) []*fleet.Instance {
	d.t.Helper()
	await.That(d.t, fmt.Sprint(n, " of ", g, " online"), func() string {
		got := len(d.serving(g))
		return await.Unless(got == n, "%d", got)
	})
	return d.serving(g)
}

// players makes n of a group's instances on a node report a player.
func (d *desk) players(on fleet.NodeID, g fleet.GroupName, n int) (who []fleet.InstanceID) {
	d.t.Helper()
	r := reports.Report{Node: on, Instances: map[fleet.InstanceID]reports.InstanceReport{}}
	for _, i := range d.serving(g) {
		if i.Placement.Node == on && len(who) < n {
			who = append(who, i.Intent.ID)
			r.Instances[i.Intent.ID] = reports.InstanceReport{Players: 3}
		}
	}
	d.write(store.Create(keys.Report(on), r))
	return who
}

func (d *desk) leavers() map[fleet.InstanceID]fleet.Eviction {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[fleet.InstanceID]fleet.Eviction{}
	for id, e := range d.asked {
		out[id] = e
	}
	return out
}

func TestHighPriorityGetsTheRoomOfTheCheapestAndOfNobodyElse(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.node("n1", 100)
	d.group("data", 2, func(s *fleet.GroupSpec) { s.Static.Enabled = true })
	d.group("near", 3, func(s *fleet.GroupSpec) { s.Priority = 41 })
	d.group("played", 2, func(*fleet.GroupSpec) {})
	d.group("plain", 3, func(*fleet.GroupSpec) {})
	d.awaitServing("data", 2)
	d.awaitServing("near", 3)
	d.awaitServing("played", 2)
	d.players("n1", "played", 2)
	plain := map[fleet.InstanceID]bool{}
	for _, i := range d.awaitServing("plain", 3) {
		plain[i.Intent.ID] = true
	}

	d.group("high", 4, func(s *fleet.GroupSpec) { s.Priority, s.Preempts = 50, true })
	d.awaitServing("high", 3)
	for id, e := range d.leavers() {
		i, ok := d.v.Snapshot().Instances.Get(id)
		if !plain[id] || e.Reason != fleet.ReasonPreempted || ok && (i.Intent.Stop == nil || i.Intent.Stop.Reason != fleet.ReasonPreempted) {
			t.Errorf("asked to leave: %+v", e)
		}
	}
	await.That(t, "reasons of all that wait, and the evictions' end", func() string {
		waiting := map[fleet.GroupName]int{}
		for _, i := range d.v.Snapshot().Instances.All() {
			if i.NeedsPlacement() && i.Pending != nil && i.Pending.Reason == fleet.ReasonNoNodeFits && i.Pending.Message != "" {
				waiting[i.Intent.Group]++
			}
		}
		left := d.v.Snapshot().Evictions.Len()
		return await.Unless(waiting["high"] == 1 && waiting["plain"] == 3 && left == 0, "%v wait, %d evictions", waiting, left)
	})
	for g, n := range map[fleet.GroupName]int{"data": 2, "near": 3, "played": 2, "high": 3} {
		if got := len(d.serving(g)); got != n {
			t.Errorf("%d of %s serve, want %d", got, g, n)
		}
	}
	if got := len(d.leavers()); got != 3 {
		t.Errorf("%d were asked to leave", got)
	}
}

func TestANewNodeAmongTenFullOnesIsFilledAndNobodyWhoPlaysNoticesIt(t *testing.T) {
	d := newDesk(t)
	var nodes []fleet.NodeID
	for n := range 10 {
		nodes = append(nodes, fleet.NodeID(fmt.Sprint("n", n)))
		d.node(nodes[n], 100)
	}
	d.group("lobby", 90, func(s *fleet.GroupSpec) { s.Rebalance, s.Where.MaxPerNode = true, 9 })
	d.awaitServing("lobby", 90)
	played := map[fleet.InstanceID]bool{}
	for _, n := range nodes {
		for _, id := range d.players(n, "lobby", 6) {
			played[id] = true
		}
	}
	d.mu.Lock()
	d.least = 90
	d.mu.Unlock()

	d.node("new", 100)
	use := func() (low, high float64) {
		held := map[fleet.NodeID]int{}
		for _, i := range d.v.Snapshot().Instances.All() {
			if i.HoldsNode() {
				held[i.Placement.Node] += i.Placement.Resources.MemoryMiB
			}
		}
		low, high = 1, 0
		for _, n := range append(nodes, "new") {
			low, high = min(low, float64(held[n])/100), max(high, float64(held[n])/100)
		}
		return low, high
	}
	await.That(t, "all nodes used alike, and nothing on the move", func() string {
		low, high := use()
		left := d.v.Snapshot().Evictions.Len()
		return await.Unless(high-low < 0.15 && left == 0 && len(d.serving("lobby")) == 90, "used from %.0f %% to %.0f %%, %d on the move", 100*low, 100*high, left)
	})
	moved := map[string]int{}
	for id, e := range d.leavers() {
		if played[id] || e.Reason != fleet.ReasonRebalanced {
			t.Errorf("asked to move: %+v", e)
		}
		i, ok := d.v.Snapshot().Instances.Get(id)
		if !ok {
			t.Errorf("nothing is known of %s any more", id)
			continue
		}
		moved[i.Intent.Place()]++
	}
	for place, n := range moved {
		if n > 1 {
			t.Errorf("what began as %s moved %d times", place, n)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.least < 90 {
		t.Errorf("only %d served at a time", d.least)
	}
}

func TestWhoMadeRoomSaysForWhomAndWaitsInItsTurn(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{MemoryMiB: 100, CPU: 400})
	admin := cluster.Login(t, c)
	createGroup(t, admin, catGroup("low", map[string]any{"memoryMb": 30, "minInstances": 3}))
	low := admin.AwaitRunning("low", 3)
	createGroup(t, admin, catGroup("high", map[string]any{"memoryMb": 30, "minInstances": 1, "priority": 50, "preempts": true}))
	high := admin.AwaitRunning("high", 1)[0]
	admin.AwaitRunning("low", 2)
	stopped, waiting := 0, 0
	await.That(t, "one that made room and one that waits for some", func() string {
		stopped, waiting = 0, 0
		for _, i := range admin.Instances("low") {
			switch i.Reason {
			case "Preempted":
				stopped++
			case "NoNodeFits":
				waiting++
			}
		}
		return await.Unless(stopped == 1 && waiting == 1, "%+v", admin.Instances("low"))
	})
	for _, i := range low {
		if got := admin.Instance(i.UID); got.Reason == "Preempted" && (got.State != "STOPPED" || !strings.Contains(got.Message, high.ID)) {
			t.Errorf("who made room says %+v", got)
		}
	}
}
