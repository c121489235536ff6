package controller_test

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// evicted waits until n instances are requested to leave, and returns the records.
func (w *world) evicted(n int) (out []*fleet.Eviction) {
	w.t.Helper()
	for deadline := time.Now().Add(await.Patience); ; <-time.After(2 * time.Millisecond) {
		out = nil
		for _, e := range w.view.Snapshot().Evictions.All() {
			out = append(out, e)
		}
		if len(out) == n {
			return out
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%d are asked to leave, want %d: %+v", len(out), n, out)
		}
	}
}

// settle removes an eviction, as the enforcer does.
func (w *world) settle(e *fleet.Eviction) {
	w.t.Helper()
	w.commit(store.Remove(keys.Eviction(e.Instance), e.ModRev))
}

func preempting(priority int) func(*fleet.GroupSpec) {
	return func(s *fleet.GroupSpec) { s.Priority, s.Preempts = priority, true }
}

func TestTheYoungestOfLowPriorityIsAskedToMakeRoomAndNobodyElseGetsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule("a")
	w.schedule("b")
	w.shards(2)
	w.node("n1", 20)
	low := w.group("low", nil)
	w.await(w.want(low, 1)[0], "placed", placed)
	younger := w.await(w.want(low, 1)[0], "placed", placed)
	high := w.want(w.group("high", preempting(50)), 1)[0]
	e := w.evicted(1)[0]
	if e.Instance != younger.Intent.ID || e.For != high || e.Node != "n1" || e.Generation != 1 || e.Reason != fleet.ReasonPreempted || e.Message == "" {
		t.Errorf("%+v", e)
	}
	rivals := w.want(low, 3) // they compete for the freed resources
	for n := range 3 {
		rivals = append(rivals, w.want(w.group(fleet.GroupName("rival-"+string(rune('a'+n))), nil), 1)...)
	}
	for _, id := range rivals {
		w.await(id, "waiting", waiting(fleet.ReasonNoNodeFits))
	}
	w.finish(younger)
	w.await(high, "placed", placed)
	w.settle(e)
	w.finish(w.await(high, "placed", placed))
	w.anyPlaced(rivals) // the kept resources are released
}

// anyPlaced waits until one of several instances is placed.
func (w *world) anyPlaced(ids []fleet.InstanceID) {
	w.t.Helper()
	for deadline := time.Now().Add(await.Patience); ; <-time.After(2 * time.Millisecond) {
		for _, id := range ids {
			if i, ok := w.view.Snapshot().Instances.Get(id); ok && placed(i) {
				return
			}
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("none of %v was placed", ids)
		}
	}
}

func TestNoRoomIsMade(t *testing.T) {
	t.Parallel()
	tests := map[string]func(w *world, low *fleet.Instance) (high func(*fleet.GroupSpec)){
		"by groups that do not ask for it": func(*world, *fleet.Instance) func(*fleet.GroupSpec) {
			return func(s *fleet.GroupSpec) { s.Priority = 50 }
		},
		"for a priority that is not clearly more": func(*world, *fleet.Instance) func(*fleet.GroupSpec) { return preempting(9) },
		"by an instance with players": func(w *world, low *fleet.Instance) func(*fleet.GroupSpec) {
			w.commit(store.Create(keys.Report("n1"), reports.Report{Node: "n1", Instances: map[fleet.InstanceID]reports.InstanceReport{low.Intent.ID: {Players: 1}}}))
			return preempting(50)
		},
		"for what only waits for a busy node": func(w *world, _ *fleet.Instance) func(*fleet.GroupSpec) {
			w.node("n2", 10)
			w.commit(store.Create(keys.Report("n2"), reports.Report{Node: "n2", CPU: 0.99}))
			return preempting(50)
		},
		"where it would not help": func(*world, *fleet.Instance) func(*fleet.GroupSpec) {
			return func(s *fleet.GroupSpec) { preempting(50)(s); s.Resources.MemoryMiB = 11 }
		},
	}
	for rule, setup := range tests {
		t.Run(rule, func(t *testing.T) {
			w := newWorld(t)
			w.schedule("a")
			w.node("n1", 10)
			low := w.await(w.want(w.group("low", nil), 1)[0], "placed", placed)
			high := w.want(w.group("high", setup(w, low)), 1)[0]
			w.await(high, "waiting", waiting(fleet.ReasonNoNodeFits))
			// The placement of later proves that the earlier instance has been tried.
			later := w.want(w.group("later", nil), 1)[0]
			w.await(later, "waiting", waiting(fleet.ReasonNoNodeFits))
			if w.view.Snapshot().Evictions.Len() > 0 {
				t.Errorf("asked to leave: %+v", w.evicted(1)[0])
			}
		})
	}
}

func TestEachOfManyIsMadeRoomForOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule("a")
	w.node("n1", 60)
	low := w.group("low", nil)
	for _, id := range w.want(low, 6) {
		w.await(id, "placed", placed)
	}
	high := w.want(w.group("high", preempting(50)), 4)
	seen := map[fleet.InstanceID]bool{}
	for _, e := range w.evicted(4) {
		if seen[e.For] {
			t.Errorf("twice for %s", e.For)
		}
		seen[e.For] = true
		i, _ := w.view.Snapshot().Instances.Get(e.Instance)
		w.finish(i)
	}
	for _, id := range high {
		w.await(id, "placed", placed)
	}
}

func TestRoomIsKeptThoughWhoAskedForItIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.schedule("a")
	w.node("n1", 10)
	low := w.group("low", nil)
	victim := w.await(w.want(low, 1)[0], "placed", placed)
	high := w.want(w.group("high", preempting(50)), 1)[0]
	e := w.evicted(1)[0]
	stop()
	rival := w.want(w.group("rival", func(s *fleet.GroupSpec) { s.Priority = 100 }), 1)[0] // it is tried first, but must not take the resources
	n, _ := w.view.Snapshot().Nodes.Get("n1")
	larger := *n
	larger.Capacity.MemoryMiB = 15
	w.commit(store.Replace(keys.Node("n1"), larger, n.ModRev))
	w.finish(victim)
	w.schedule("b")
	w.await(high, "placed", placed)
	w.await(rival, "waiting", waiting(fleet.ReasonNoNodeFits))
	w.settle(e)
	if w.view.Snapshot().Evictions.Len() > 0 {
		t.Errorf("somebody else is asked to leave: %+v", w.evicted(1))
	}
}

func TestNobodyIsDisplacedForRoomThatComesByItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule("a")
	w.node("n1", 20)
	low := w.group("low", nil)
	leaving := w.await(w.want(low, 1)[0], "placed", placed)
	w.await(w.want(low, 1)[0], "placed", placed)
	intent := leaving.Intent
	intent.Desired, intent.Stop = fleet.DesiredStopped, &fleet.StopRequest{At: time.Now().UTC(), Reason: fleet.ReasonStopRequested}
	w.commit(store.Replace(keys.Intent(intent.ID), intent, intent.ModRev))
	high := w.want(w.group("high", preempting(50)), 1)[0]
	w.await(high, "waiting", waiting(fleet.ReasonNoNodeFits))
	// The placement of later proves that the earlier instance has been tried.
	later := w.want(w.group("later", nil), 1)[0]
	w.await(later, "waiting", waiting(fleet.ReasonNoNodeFits))
	if w.view.Snapshot().Evictions.Len() > 0 {
		t.Errorf("asked to leave: %+v", w.evicted(1)[0])
	}
	stopping, _ := w.view.Snapshot().Instances.Get(leaving.Intent.ID)
	w.finish(stopping)
	w.await(high, "placed", placed)
}
