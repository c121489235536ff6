package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/spawn"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler"
)

// world is an etcd with a scheduler. It writes the records that other services would write.
type world struct {
	t    *testing.T
	c    *store.Client
	view *view.View
	// ahead is by how much the schedulers' clock is ahead.
	ahead atomic.Int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, c: storetest.New(t)}
	w.view = view.New(w.c, nil, scheduler.Kinds()...)
	w.run(w.view.Run)
	return w
}

// now returns the schedulers' time.
func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

// run runs f until the test ends or stop is called.
func (w *world) run(f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); _ = f(ctx) }()
	stop = func() { cancel(); <-done }
	w.t.Cleanup(stop)
	return stop
}

// schedule starts a scheduler with its own view.
func (w *world) schedule(replica string) (stop func()) {
	w.t.Helper()
	v := view.New(w.c, nil, scheduler.Kinds()...)
	s, err := scheduler.New(scheduler.Config{Store: w.c, View: v, Replica: replica, Log: slog.New(slog.DiscardHandler), Now: w.now})
	if err != nil {
		w.t.Fatal(err)
	}
	w.run(v.Run)
	return w.run(s.Run)
}

func (w *world) commit(writes ...store.Write) {
	w.t.Helper()
	rev, err := w.c.Commit(w.t.Context(), store.Txn{Writes: writes})
	if err != nil {
		w.t.Fatal(err)
	}
	w.sync(rev)
}

func (w *world) sync(rev int64) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), await.Patience)
	defer cancel()
	if _, err := w.view.WaitRev(ctx, rev); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) node(id fleet.NodeID, memory int) {
	w.t.Helper()
	w.commit(
		store.Create(keys.Node(id), fleet.Node{ID: id, Capacity: fleet.Resources{MemoryMiB: memory, CPU: 1000, DiskMiB: 1000}, Runtimes: []fleet.NodeRuntime{{Name: fleet.RuntimeProcess, Offered: true}}}),
		store.Create(keys.NodeSession(id), fleet.NodeSession{Node: id}))
}

func (w *world) group(name fleet.GroupName, change func(*fleet.GroupSpec)) *fleet.Group {
	w.t.Helper()
	g := fleet.Group{Name: name, Revision: 1, Spec: fleet.DefaultSpec()}
	g.Spec.Resources = fleet.Resources{MemoryMiB: 10}
	if change != nil {
		change(&g.Spec)
	}
	w.commit(store.Create(keys.Group(name), g))
	got, _ := w.view.Snapshot().Groups.Get(name)
	return got
}

func (w *world) want(g *fleet.Group, n int) []fleet.InstanceID {
	w.t.Helper()
	return w.wantWith(g, n, nil)
}

// wantWith creates instances with values.
func (w *world) wantWith(g *fleet.Group, n int, values map[string]string) []fleet.InstanceID {
	w.t.Helper()
	sp := spawn.New(w.view.Snapshot(), time.Now(), rand.New(rand.NewPCG(1, uint64(n))))
	var births []spawn.Birth
	var ids []fleet.InstanceID
	for range n {
		b := sp.Fresh(g, spawn.Cause{Origin: fleet.OriginManual, Reason: fleet.ReasonRequested}, "", values)
		births, ids = append(births, b), append(ids, b.Intent.ID)
	}
	for _, txn := range sp.Txns(births, nil, nil, w.c.MaxOps()) {
		rev, err := w.c.Commit(w.t.Context(), txn)
		if err != nil {
			w.t.Fatal(err)
		}
		w.sync(rev)
	}
	return ids
}

// await waits until an instance satisfies a condition, and returns it.
func (w *world) await(id fleet.InstanceID, what string, ok func(*fleet.Instance) bool) (i *fleet.Instance) {
	w.t.Helper()
	await.That(w.t, fmt.Sprint(id, " ", what), func() string {
		found := false
		i, found = w.view.Snapshot().Instances.Get(id)
		if found && ok(i) {
			return ""
		}
		said, err := json.Marshal(i) // print the records instead of their addresses
		return string(said) + await.Unless(err == nil, "%v", err)
	})
	return i
}

func placed(i *fleet.Instance) bool {
	return i.Placement != nil && i.Placement.Generation == i.Intent.Generation
}

func waiting(reason fleet.Reason) func(*fleet.Instance) bool {
	return func(i *fleet.Instance) bool { return i.Pending != nil && i.Pending.Reason == reason }
}

func (w *world) finish(i *fleet.Instance) {
	w.t.Helper()
	w.commit(store.Create(keys.Status(i.Intent.ID), fleet.Status{Instance: i.Intent.ID, Node: i.Placement.Node, Generation: i.Intent.Generation, State: fleet.Stopped, Reason: fleet.ReasonStopRequested, FinishedAt: time.Now()}))
}

func TestWhatIsWantedIsPlaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule("a")
	w.node("n1", 1000)
	id := w.want(w.group("lobby", nil), 1)[0]
	i := w.await(id, "placed", placed)
	if p := i.Placement; p.Node != "n1" || p.Port != 30000 || p.Epoch == 0 || p.Plan != i.Intent.Plan || p.Score.Parts()["total"] == 0 {
		t.Errorf("placement %+v", p)
	}
}

func TestFiftyAtOnceGetDistinctPortsAndNoMoreRoomThanThereIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("n1", 300) // room for 30
	ids := w.want(w.group("many", nil), 50)
	w.schedule("a")
	ports := map[int]bool{}
	for _, id := range ids {
		w.await(id, "decided", func(i *fleet.Instance) bool { return placed(i) || i.Pending != nil })
	}
	n := 0
	for _, id := range ids {
		if i, _ := w.view.Snapshot().Instances.Get(id); placed(i) {
			n++
			ports[i.Placement.Port] = true
		}
	}
	if n != 30 || len(ports) != 30 {
		t.Errorf("%d placed on %d ports, want 30", n, len(ports))
	}
}

func TestAPendingOneSaysWhyAndIsPlacedWhenRoomIsFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule("a")
	w.node("n1", 10)
	g := w.group("tight", nil)
	first := w.await(w.want(g, 1)[0], "placed", placed)
	second := w.want(g, 1)[0]
	i := w.await(second, "waiting", waiting(fleet.ReasonNoNodeFits))
	if i.Pending.Lost[0].Filter != "memory" || i.Pending.Nodes != 1 {
		t.Errorf("note %+v", i.Pending)
	}
	w.finish(first)
	if i := w.await(second, "placed", placed); i.Pending != nil {
		t.Errorf("the note stayed: %+v", i.Pending)
	}
}

func TestWithoutNodesTheReasonIsThatAndAJoinHelps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule("a")
	id := w.want(w.group("early", nil), 1)[0]
	w.await(id, "waiting", waiting(fleet.ReasonNoNodes))
	w.node("n1", 1000)
	w.await(id, "placed", placed)
}

func TestACordonExcludesUntilItIsLifted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule("a")
	w.commit(store.Create(keys.NodeDesired("n1"), fleet.NodeDesired{Node: "n1", Cordoned: true}))
	w.node("n1", 1000)
	id := w.want(w.group("lobby", nil), 1)[0]
	w.await(id, "waiting", waiting(fleet.ReasonNoNodeFits))
	d, _ := w.view.Snapshot().NodesDesired.Get("n1")
	w.commit(store.Replace(keys.NodeDesired("n1"), fleet.NodeDesired{Node: "n1"}, d.ModRev))
	w.await(id, "placed", placed)
}

func TestWhatIsStoppedMeanwhileIsNotPlaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule("a")
	g := w.group("lobby", nil)
	id := w.want(g, 1)[0]
	i := w.await(id, "waiting", waiting(fleet.ReasonNoNodes))
	stopped := i.Intent
	stopped.Desired = fleet.DesiredStopped
	w.commit(store.Replace(keys.Intent(id), stopped, i.Intent.ModRev))
	w.node("n1", 1000)
	w.await(w.want(g, 1)[0], "placed", placed) // one that is requested later
	if i, _ := w.view.Snapshot().Instances.Get(id); placed(i) {
		t.Error("a stopped instance was placed")
	}
}

func TestAStaticInstanceStaysWhereItsDataLies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule("a")
	w.node("n1", 1000)
	g := w.group("world", func(s *fleet.GroupSpec) { s.Static.Enabled = true })
	first := w.await(w.want(g, 1)[0], "placed", placed)
	w.finish(first)
	w.node("n2", 100_000) // by far the better node
	ended := w.await(first.Intent.ID, "ended", func(i *fleet.Instance) bool { return i.Terminal() })
	sp := spawn.New(w.view.Snapshot(), time.Now(), rand.New(rand.NewPCG(1, 2)))
	again, err := sp.Again(g, ended, spawn.Cause{Reason: fleet.ReasonRestart})
	if err != nil {
		t.Fatal(err)
	}
	for _, txn := range sp.Txns([]spawn.Birth{again}, nil, nil, w.c.MaxOps()) {
		if _, err := w.c.Commit(t.Context(), txn); err != nil {
			t.Fatal(err)
		}
	}
	i := w.await(first.Intent.ID, "placed again", func(i *fleet.Instance) bool { return i.Intent.Generation == 2 && placed(i) })
	if i.Placement.Node != "n1" || i.Placement.Port != first.Placement.Port {
		t.Errorf("placed on %s:%d, its data lies on n1 and its port was %d", i.Placement.Node, i.Placement.Port, first.Placement.Port)
	}
}

func TestASecondSchedulerTakesOverAndNothingIsOvercommitted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("n1", 300)
	stop := w.schedule("a")
	g := w.group("many", nil)
	for _, id := range w.want(g, 10) {
		w.await(id, "placed by the first", placed)
	}
	w.schedule("b")
	more := w.want(g, 40)
	stop()
	for _, id := range more {
		w.await(id, "decided", func(i *fleet.Instance) bool { return placed(i) || i.Pending != nil })
	}
	memory, ports := 0, map[int]int{}
	for i := range w.view.Snapshot().NodeInstances("n1") {
		memory += i.Placement.Resources.MemoryMiB
		ports[i.Placement.Port]++
	}
	if memory != 300 || len(ports) != 30 {
		t.Errorf("%d MiB on %d ports of a node with 300 MiB", memory, len(ports))
	}
}

func TestMissingPartsAreNamed(t *testing.T) {
	t.Parallel()
	_, err := scheduler.New(scheduler.Config{})
	if !errs.Is(err, errs.Invalid) {
		t.Errorf("err = %v", fmt.Sprint(err))
	}
}

// block reports the ports that foreign programs hold on a node.
func (w *world) block(id fleet.NodeID, ports ...fleet.BlockedPort) {
	w.t.Helper()
	n, _ := w.view.Snapshot().Nodes.Get(id)
	next := *n
	next.BlockedPorts = ports
	w.commit(store.Replace(keys.Node(id), next, n.ModRev))
}

func TestAPortThatAStrangerHoldsIsAvoided(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("n1", 1000)
	w.block("n1", fleet.BlockedPort{Port: 30000, Until: time.Now().Add(time.Hour)})
	w.schedule("a")
	i := w.await(w.want(w.group("lobby", nil), 1)[0], "placed", placed)
	if i.Placement.Port != 30001 {
		t.Errorf("port %d", i.Placement.Port)
	}
}

// The blocking time starts when the scheduler sees the report. The node's clock does not
// matter.
func TestABlockedPortIsTriedAgainWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{-12 * time.Hour, 0, 12 * time.Hour} {
		w := newWorld(t)
		w.node("n1", 1000)
		w.block("n1", fleet.BlockedPort{Port: 30000, Until: time.Now().Add(skew + fleet.PortBlockedFor)})
		w.schedule("a")
		id := w.want(w.group("lobby", func(s *fleet.GroupSpec) { s.Ports = fleet.PortRange{Start: 30000, End: 30000} }), 1)[0]
		w.await(id, "refused", func(i *fleet.Instance) bool { return i.Pending != nil })
		w.ahead.Store(int64(fleet.PortBlockedFor))
		w.group("other", nil) // makes the scheduler look at its clock
		if i := w.await(id, "placed", placed); i.Placement.Port != 30000 {
			t.Errorf("port %d", i.Placement.Port)
		}
	}
}

func TestAnInstanceWaitsForItsPlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("n1", 1000)
	w.schedule("a")
	plan := compose.Compose(*w.group("lobby", nil), compose.Materials{}, 0)
	w.commit(store.Create(keys.Intent("abc123"), fleet.Intent{
		ID: "abc123", Name: "lobby-1", Group: "lobby", Plan: plan.Digest(), Desired: fleet.DesiredRunning, Generation: 1,
	}))
	w.await("abc123", "waiting", waiting(fleet.ReasonPlanMissing))
	w.commit(store.Create(keys.Plan(plan.Digest()), fleet.StoredPlan{Plan: plan}))
	w.await("abc123", "placed", placed)
}

func TestALostNodeKeepsItsRoomUntilItsAgentSpeaks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("n1", 10)
	w.schedule("a")
	g := w.group("lobby", nil)
	first := w.await(w.want(g, 1)[0], "placed", placed)
	session, _ := w.view.Snapshot().NodeSessions.Get("n1")
	w.commit(
		store.Remove(keys.NodeSession("n1"), session.ModRev),
		store.Create(keys.Status(first.Intent.ID), fleet.Status{Instance: first.Intent.ID, Node: "n1", Generation: 1, State: fleet.Offline, Reason: fleet.ReasonNodeLost}))
	second := w.want(g, 1)[0]
	lost := func(filter string) func(*fleet.Instance) bool {
		return func(i *fleet.Instance) bool { return i.Pending != nil && i.Pending.Lost[0].Filter == filter }
	}
	w.await(second, "waiting for the session", lost("session"))
	w.commit(store.Create(keys.NodeSession("n1"), fleet.NodeSession{Node: "n1"}))
	w.await(second, "waiting for the memory", lost("memory"))
	i, _ := w.view.Snapshot().Instances.Get(first.Intent.ID)
	gone := *i.Status
	gone.State = fleet.Crashed
	w.commit(store.Replace(keys.Status(first.Intent.ID), gone, i.Status.ModRev))
	w.await(second, "placed", placed)
}

// lose ends a node's session and marks an instance on it as lost, as the enforcer does.
func (w *world) lose(i *fleet.Instance) {
	w.t.Helper()
	n := i.Placement.Node
	session, _ := w.view.Snapshot().NodeSessions.Get(n)
	w.commit(
		store.Remove(keys.NodeSession(n), session.ModRev),
		store.Create(keys.Status(i.Intent.ID), fleet.Status{Instance: i.Intent.ID, Node: n, Generation: 1, State: fleet.Offline, Reason: fleet.ReasonNodeLost}))
}

// again requests an instance's next generation.
func (w *world) again(id fleet.InstanceID) {
	w.t.Helper()
	i, _ := w.view.Snapshot().Instances.Get(id)
	next := i.Intent
	next.Generation++
	if i.Lost() || i.Stranded() {
		node, _ := w.view.Snapshot().Nodes.Get(i.Placement.Node)
		next.Leaves, next.LeavesNode = i.Status.ModRev, node.ModRev
	}
	w.commit(store.Replace(keys.Intent(id), next, i.Intent.ModRev))
}

func TestAStaticInstanceThatIsToLeaveALostNodeIsPlacedElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("n1", 100)
	w.schedule("a")
	g := w.group("world", func(s *fleet.GroupSpec) { s.Static.Enabled, s.OnNodeLoss = true, fleet.NodeLossReplace })
	id := w.want(g, 1)[0]
	first := w.await(id, "placed", placed)
	w.node("n2", 100)
	w.lose(first)
	w.again(id)
	i := w.await(id, "placed elsewhere", func(i *fleet.Instance) bool { return placed(i) && i.Placement.Node == "n2" })
	if i.Placement.Generation != 2 {
		t.Errorf("generation %d", i.Placement.Generation)
	}
	if _, err := store.Get(t.Context(), w.c, keys.Placement("n1", id)); !errs.Is(err, errs.NotFound) {
		t.Errorf("the old placement stands: %v", err)
	}
}

func TestANodeThatWasBackMeanwhileIsNotLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("n1", 100)
	w.schedule("a")
	g := w.group("world", func(s *fleet.GroupSpec) { s.Static.Enabled, s.OnNodeLoss = true, fleet.NodeLossReplace })
	id := w.want(g, 1)[0]
	first := w.await(id, "placed", placed)
	w.lose(first)
	w.again(id)
	w.await(id, "waiting for a node", func(i *fleet.Instance) bool { return i.Pending != nil })
	node, _ := w.view.Snapshot().Nodes.Get("n1")
	w.commit(store.Replace(keys.Node("n1"), *node, node.ModRev)) // it joined, and left before it reported
	w.node("n2", 100)
	w.await(id, "waiting for the node it was on", func(i *fleet.Instance) bool {
		return i.Pending != nil && i.Pending.Reason == fleet.ReasonPinnedWaiting
	})
	w.again(id)
	w.await(id, "placed elsewhere", func(i *fleet.Instance) bool { return placed(i) && i.Placement.Node == "n2" })
}

// deleteNode deletes the node of a static instance and requests its next generation.
func (w *world) deleteNode(i *fleet.Instance) {
	w.t.Helper()
	id := i.Intent.ID
	w.lose(i)
	lost, _ := w.view.Snapshot().Instances.Get(id)
	ended := *lost.Status
	ended.State, ended.Reason = fleet.Stopped, fleet.ReasonNodeDeleted
	w.commit(store.Replace(keys.Status(id), ended, lost.Status.ModRev))
	w.again(id)
	w.await(id, "waiting for its node", waiting(fleet.ReasonPinnedWaiting))
	node, _ := w.view.Snapshot().Nodes.Get(i.Placement.Node)
	w.commit(store.Remove(keys.Node(node.ID), node.ModRev))
	i = w.await(id, "waiting for its data", waiting(fleet.ReasonDataLost))
	if !strings.Contains(i.Pending.Message, "--discard-data") {
		w.t.Errorf("it does not say what to do: %s", i.Pending.Message)
	}
}

// join makes a node join with a data directory.
func (w *world) join(id fleet.NodeID, dataUUID string) {
	w.t.Helper()
	w.commit(
		store.Create(keys.Node(id), fleet.Node{
			ID: id, DataUUID: dataUUID, Capacity: fleet.Resources{MemoryMiB: 100, CPU: 1000, DiskMiB: 1000},
			Runtimes: []fleet.NodeRuntime{{Name: fleet.RuntimeProcess, Offered: true}},
		}),
		store.Create(keys.NodeSession(id), fleet.NodeSession{Node: id}))
}

func TestAStaticInstanceWaitsForTheDataOfADeletedNode(t *testing.T) {
	t.Parallel()
	static := func(s *fleet.GroupSpec) { s.Static.Enabled = true }
	begun := func(t *testing.T) (w *world, id fleet.InstanceID) {
		w = newWorld(t)
		w.join("n1", "first")
		w.schedule("a")
		id = w.want(w.group("world", static), 1)[0]
		first := w.await(id, "placed", placed)
		w.join("n2", "second")
		w.deleteNode(first)
		return w, id
	}
	t.Run("until the node is back with its data directory", func(t *testing.T) {
		w, id := begun(t)
		w.join("n1", "another")
		w.await(w.want(w.group("later", nil), 1)[0], "placed, so the scheduler knows the node", placed)
		if i, _ := w.view.Snapshot().Instances.Get(id); placed(i) {
			t.Fatalf("placed on another data directory: %+v", i.Placement)
		}
		node, _ := w.view.Snapshot().Nodes.Get("n1")
		session, _ := w.view.Snapshot().NodeSessions.Get("n1")
		w.commit(store.Remove(keys.Node("n1"), node.ModRev), store.Remove(keys.NodeSession("n1"), session.ModRev))
		w.join("n1", "first")
		if i := w.await(id, "placed", placed); i.Placement.Node != "n1" {
			t.Errorf("placed on %s", i.Placement.Node)
		}
	})
	t.Run("until somebody says that it may start without", func(t *testing.T) {
		w, id := begun(t)
		i, _ := w.view.Snapshot().Instances.Get(id)
		next := i.Intent
		next.DiscardsData = i.Placement.Generation
		w.commit(store.Replace(keys.Intent(id), next, i.Intent.ModRev))
		if i := w.await(id, "placed", placed); i.Placement.Node != "n2" || i.Placement.DataUUID != "second" {
			t.Errorf("placed as %+v", i.Placement)
		}
	})
	t.Run("while others of its plan are placed", func(t *testing.T) {
		w, _ := begun(t)
		g, _ := w.view.Snapshot().Groups.Get("world")
		w.await(w.want(g, 2)[1], "placed", placed)
	})
}

func TestAnInstanceOnSharedStorageIsFreeOfADeletedNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("n1", "first")
	w.schedule("a")
	g := w.group("world", func(s *fleet.GroupSpec) { s.Static.Enabled, s.OnNodeLoss = true, fleet.NodeLossReplace })
	id := w.want(g, 1)[0]
	first := w.await(id, "placed", placed)
	w.join("n2", "second")
	w.lose(first)
	lost, _ := w.view.Snapshot().Instances.Get(id)
	ended := *lost.Status
	ended.State, ended.Reason = fleet.Stopped, fleet.ReasonNodeDeleted
	node, _ := w.view.Snapshot().Nodes.Get("n1")
	w.commit(store.Replace(keys.Status(id), ended, lost.Status.ModRev), store.Remove(keys.Node("n1"), node.ModRev))
	w.again(id)
	w.await(id, "placed elsewhere", func(i *fleet.Instance) bool { return placed(i) && i.Placement.Node == "n2" })
}

func TestPlacementsWithLargeValuesDoNotFillOneTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("n1", 1000)
	ids := w.wantWith(w.group("lobby", nil), 40, map[string]string{"motd": strings.Repeat("x", 60<<10)})
	w.schedule("a") // all of them in its first pass
	for _, id := range ids {
		w.await(id, "placed", placed)
	}
}

func TestPlacementsWithManyPortsFillARequestSooner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range 12 {
		w.node(fleet.NodeID(fmt.Sprint("n", n)), 1000)
	}
	w.schedule("a")
	g := w.group("lobby", func(s *fleet.GroupSpec) {
		for n := range 250 {
			s.AdditionalPorts = append(s.AdditionalPorts, fleet.NamedPort{
				Name: fmt.Sprintf("%s%d", strings.Repeat("x", 60), n), Protocol: "tcp", Range: fleet.PortRange{Start: 31_000, End: 65_000},
			})
		}
	})
	for _, id := range w.want(g, 240) {
		w.await(id, "placed", placed)
	}
}

func TestLargeValuesOnManyNodesFillARequestTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range 2 {
		w.node(fleet.NodeID(fmt.Sprint("n", n)), 1000)
	}
	ids := slices.Concat(
		w.wantWith(w.group("lobby", nil), 32, map[string]string{"MAP": strings.Repeat("x", 60<<10)}),
		w.wantWith(w.group("escaped", nil), 12, map[string]string{"MAP": strings.Repeat("<", 60<<10)}))
	w.schedule("a")
	for _, id := range ids {
		w.await(id, "placed", placed)
	}
}
