package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/spawn"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
)

const node = fleet.NodeID("node-1")

// world is an etcd with a view for the test. The test writes the records that gateway,
// scheduler and agent would write.
type world struct {
	t      testing.TB
	client *store.Client
	view   *view.View
}

func newWorld(t testing.TB) *world {
	client := storetest.New(t)
	w := &world{t: t, client: client, view: view.New(client, nil, Kinds()...)}
	w.background(w.view.Run)
	if err := w.view.Synced(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.join()
	return w
}

// join creates the node's record and a session, as its agent does.
func (w *world) join() {
	w.t.Helper()
	var before int64
	if record, ok := w.view.Snapshot().Nodes.Get(node); ok {
		before = record.ModRev
	}
	w.commit(store.Create(keys.NodeSession(node), fleet.NodeSession{Node: node, StartedAt: time.Now().UTC()}),
		store.Replace(keys.Node(node), fleet.Node{ID: node, SessionTTLSeconds: 1}, before))
}

// lose ends the node's session.
func (w *world) lose() {
	w.t.Helper()
	s, _ := w.view.Snapshot().NodeSessions.Get(node)
	w.commit(store.Remove(keys.NodeSession(node), s.ModRev))
}

// background runs f until the test ends or stop is called.
func (w *world) background(f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = f(ctx) })
	stop = func() { cancel(); running.Wait() }
	w.t.Cleanup(stop)
	return stop
}

// enforcer starts an enforcer with its own view.
func (w *world) enforcer(replica string, l plan.Limits) (c *Controller, stop func()) {
	w.t.Helper()
	v := view.New(w.client, nil, Kinds()...)
	c, err := New(Config{
		Store: w.client, View: v, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		Replica: replica, Limits: l,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	stopView := w.background(v.Run)
	stopRun := w.background(c.Run)
	return c, func() { stopRun(); stopView() }
}

func (w *world) commit(writes ...store.Write) int64 {
	w.t.Helper()
	rev, err := w.client.Commit(w.t.Context(), store.Txn{Writes: writes})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.view.WaitRev(w.t.Context(), rev); err != nil {
		w.t.Fatal(err)
	}
	return rev
}

// until waits for a condition on the state, and prints the state on failure.
func (w *world) until(what string, ok func(*view.Snapshot) bool) *view.Snapshot {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), await.Patience)
	defer cancel()
	for {
		s := w.view.Snapshot()
		if ok(s) {
			return s
		}
		if _, err := w.view.WaitRev(ctx, s.Rev+1); err != nil {
			w.t.Fatalf("waited in vain for %s; last state:\n%s", what, dump(s))
		}
	}
}

func dump(s *view.Snapshot) string {
	var b strings.Builder
	fmt.Fprintf(&b, "revision %d\n", s.Rev)
	for name, g := range s.Groups.All() {
		fmt.Fprintf(&b, "group %s deleting=%v min=%d\n", name, g.Deleting, g.Spec.Scaling.Min)
	}
	for id, i := range s.Instances.All() {
		j, _ := json.Marshal(i)
		fmt.Fprintf(&b, "%s %s %s\n", id, i.State(), j)
	}
	for name, l := range s.CrashLoops.All() {
		fmt.Fprintf(&b, "crash loop %s %+v\n", name, *l)
	}
	return b.String()
}

// group creates a group as the gateway does.
func (w *world) group(name fleet.GroupName, edit func(*fleet.Group)) {
	w.t.Helper()
	g := fleet.Group{Name: name, Revision: 1, CreatedAt: time.Now().UTC(), UpdatedAt: time.Now().UTC(), Spec: fleet.DefaultSpec()}
	g.Spec.Command = "serve"
	edit(&g)
	w.commit(store.Create(keys.Group(name), g))
}

// change edits a group as the gateway does. It retries when the enforcer changed it
// meanwhile.
func (w *world) change(name fleet.GroupName, edit func(*fleet.Group)) {
	w.t.Helper()
	g, ok := w.view.Snapshot().Groups.Get(name)
	if !ok {
		w.t.Fatalf("no group %s", name)
	}
	next := *g
	next.Revision++
	next.UpdatedAt = time.Now().UTC()
	edit(&next)
	w.commit(store.Replace(keys.Group(name), next, g.ModRev))
}

// create creates an instance by hand, as the gateway does.
func (w *world) create(name fleet.GroupName) fleet.InstanceID {
	w.t.Helper()
	snap := w.view.Snapshot()
	g, _ := snap.Groups.Get(name)
	s := spawn.New(snap, time.Now(), rand.New(rand.NewPCG(1, uint64(snap.Rev))))
	b := s.Fresh(g, spawn.Cause{Origin: fleet.OriginManual, Reason: fleet.ReasonRequested, By: "alice"}, "", nil)
	for _, txn := range s.Txns([]spawn.Birth{b}, nil, nil, store.DefaultMaxOps) {
		rev, err := w.client.Commit(w.t.Context(), txn)
		if err != nil {
			w.t.Fatal(err)
		}
		_, _ = w.view.WaitRev(w.t.Context(), rev)
	}
	return b.Intent.ID
}

// intent edits an intent as the gateway does.
func (w *world) intent(id fleet.InstanceID, edit func(*fleet.Intent)) {
	w.t.Helper()
	i, ok := w.view.Snapshot().Instances.Get(id)
	if !ok {
		w.t.Fatalf("no instance %s", id)
	}
	next := i.Intent
	edit(&next)
	w.commit(store.Replace(keys.Intent(id), next, i.Intent.ModRev))
}

func stopped(i *fleet.Intent) {
	i.Desired = fleet.DesiredStopped
	i.Stop = &fleet.StopRequest{At: time.Now().UTC(), By: "alice", Reason: fleet.ReasonStopRequested}
}

// place writes a placement as the scheduler does.
func (w *world) place(id fleet.InstanceID) {
	w.t.Helper()
	i, _ := w.view.Snapshot().Instances.Get(id)
	p := fleet.Placement{
		Instance: id, Name: i.Intent.Name, Group: i.Intent.Group, Node: node, Generation: i.Intent.Generation,
		Plan: i.Intent.Plan, PlacedAt: time.Now().UTC(),
	}
	var rev int64
	if i.Placement != nil {
		rev = i.Placement.ModRev
	}
	w.commit(store.Replace(keys.Placement(node, id), p, rev))
}

// report writes a status as the agent does.
func (w *world) report(id fleet.InstanceID, state fleet.State, why fleet.Reason) int64 {
	w.t.Helper()
	i, _ := w.view.Snapshot().Instances.Get(id)
	now := time.Now().UTC()
	s := fleet.Status{
		Instance: id, Group: i.Intent.Group, Node: node, Generation: i.Placement.Generation,
		State: state, Reason: why, ChangedAt: now,
	}
	if state.Terminal() {
		s.FinishedAt = now
	}
	var rev int64
	if i.Status != nil {
		rev = i.Status.ModRev
	}
	return w.commit(store.Replace(keys.Status(id), s, rev))
}

// online places an instance and reports it as online.
func (w *world) online(id fleet.InstanceID) {
	w.t.Helper()
	w.place(id)
	w.report(id, fleet.Online, fleet.ReasonReady)
}

// crash places an instance if necessary and reports a crash.
func (w *world) crash(id fleet.InstanceID) int64 {
	w.t.Helper()
	if i, _ := w.view.Snapshot().Instances.Get(id); !i.HoldsNode() {
		w.place(id)
	}
	return w.report(id, fleet.Crashed, fleet.ReasonExited)
}

// living returns the instances of a group that should run, sorted by ID.
func living(s *view.Snapshot, g fleet.GroupName) []*fleet.Instance {
	var out []*fleet.Instance
	for i := range s.GroupInstances(g) {
		if i.Living(false) {
			out = append(out, i)
		}
	}
	return out
}

// untilLiving waits until n instances of a group should run.
func (w *world) untilLiving(g fleet.GroupName, n int) []*fleet.Instance {
	w.t.Helper()
	s := w.until(fmt.Sprintf("%d living instances of %s", n, g), func(s *view.Snapshot) bool { return len(living(s, g)) == n })
	return living(s, g)
}

// untilOrder waits until an instance has an order.
func (w *world) untilOrder(id fleet.InstanceID, action fleet.OrderAction) *fleet.Order {
	w.t.Helper()
	s := w.until(fmt.Sprintf("order %s for %s", action, id), func(s *view.Snapshot) bool {
		i, ok := s.Instances.Get(id)
		return ok && i.Order != nil && i.Order.Action == action
	})
	i, _ := s.Instances.Get(id)
	return i.Order
}

// gone reports whether no record of an instance is left.
func (w *world) gone(id fleet.InstanceID) bool {
	w.t.Helper()
	for _, key := range []string{
		keys.Intent(id).String(), keys.Status(id).String(),
		keys.Placement(node, id).String(), keys.Order(node, id).String(),
	} {
		if w.exists(key) {
			w.t.Logf("%s is left", key)
			return false
		}
	}
	return true
}

func (w *world) exists(key string) bool {
	w.t.Helper()
	kind, rest, _ := keys.Split(key)
	var err error
	switch id := fleet.InstanceID(rest[len(rest)-1]); kind {
	case "instances":
		_, err = store.Get(w.t.Context(), w.client, keys.Intent(id))
	case "status":
		_, err = store.Get(w.t.Context(), w.client, keys.Status(id))
	case "placements":
		_, err = store.Get(w.t.Context(), w.client, keys.Placement(node, id))
	case "orders":
		_, err = store.Get(w.t.Context(), w.client, keys.Order(node, id))
	}
	if err != nil && !errs.Is(err, errs.NotFound) {
		w.t.Fatal(err)
	}
	return err == nil
}

// static starts an enforcer with one static instance of the group "world", and returns its
// ID once it is online.
func (w *world) static(edits ...func(*fleet.Group)) fleet.InstanceID {
	w.t.Helper()
	w.enforcer("a", plan.DefaultLimits())
	w.group("world", func(g *fleet.Group) {
		g.Spec.Scaling.Min, g.Spec.Static.Enabled = 1, true
		for _, edit := range edits {
			edit(g)
		}
	})
	id := w.untilLiving("world", 1)[0].Intent.ID
	w.online(id)
	return id
}
