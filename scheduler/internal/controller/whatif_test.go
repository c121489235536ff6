package controller_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/scheduler/client"
	"github.com/orreryhq/orrery/scheduler/internal/answer"
	"github.com/orreryhq/orrery/scheduler/internal/controller"
	"github.com/orreryhq/orrery/scheduler/internal/golden"
)

// read formats a simulation as readable text.
func read(s client.Simulation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "placed %d, pending %d, kept %d, stopped %d\n", s.Placed, s.Pending, s.Kept, s.Stopped)
	for _, o := range s.Instances {
		fmt.Fprintf(&b, "%s %s", o.Name, o.Effect)
		if o.Node != "" {
			fmt.Fprintf(&b, " on %s:%d", o.Node, o.Port)
		}
		if o.From != "" {
			fmt.Fprintf(&b, ", from %s", o.From)
		}
		if o.Replaces != "" {
			fmt.Fprintf(&b, ", in place of %s", o.Replaces)
		}
		if o.Reason != "" {
			fmt.Fprintf(&b, " (%s: %s)", o.Reason, o.Message)
		}
		b.WriteByte('\n')
	}
	for _, u := range s.Unfit {
		fmt.Fprintf(&b, "%d of %s: %s\n", u.Instances, u.Group, u.Message)
	}
	for _, n := range s.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}

// mixed creates a group of each kind on node n1, with little room elsewhere.
func (w *world) mixed() {
	w.t.Helper()
	w.node("n1", 1000)
	kinds := []struct {
		name   fleet.GroupName
		n      int
		change func(*fleet.GroupSpec)
	}{
		{"by-hand", 1, func(s *fleet.GroupSpec) { s.Scaling.Mode = fleet.ScalingManual }},
		{"data", 1, func(s *fleet.GroupSpec) { s.Static.Enabled = true }},
		{"moving", 1, func(s *fleet.GroupSpec) { s.Static.Enabled, s.OnNodeLoss = true, fleet.NodeLossReplace }},
		{"plain", 2, func(s *fleet.GroupSpec) { s.Resources.MemoryMiB = 40 }},
		{"stops", 2, func(s *fleet.GroupSpec) { s.OnNodeLoss, s.Scaling.Min = fleet.NodeLossStop, 1 }},
		{"waits", 1, func(s *fleet.GroupSpec) { s.OnNodeLoss = fleet.NodeLossWait }},
	}
	for _, k := range kinds {
		for _, id := range w.want(w.group(k.name, k.change), k.n) {
			w.await(id, "placed", placed)
		}
	}
	w.node("n2", 85)
}

func TestADrainFollowsTheGroupsPolicies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ask, _ := w.answering()
	w.mixed()
	golden.File(t, "drain.txt", read(w.simulate(ask, client.Question{Drain: &client.DrainQuestion{Node: "n1"}})))
}

func TestALossFollowsTheGroupsPolicies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ask, _ := w.answering()
	w.mixed()
	golden.File(t, "lose.txt", read(w.simulate(ask, client.Question{Lose: &client.NodeQuestion{Node: "n1"}})))
}

func TestALossOfTheEnforcersOwnIsMadeGoodUpToTheMinimum(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ask, _ := w.answering()
	w.node("n1", 1000)
	g := w.group("own", func(s *fleet.GroupSpec) { s.Scaling.Min = 2 })
	for _, id := range w.want(g, 3) {
		i := w.await(id, "placed", placed)
		next := i.Intent
		next.Origin = fleet.OriginMinimum
		w.commit(store.Replace(keys.Intent(id), next, i.Intent.ModRev))
	}
	w.node("n2", 1000)
	golden.File(t, "lose-own.txt", read(w.simulate(ask, client.Question{Lose: &client.NodeQuestion{Node: "n1"}})))
}

func TestSoMuchLossThatNothingIsReplacedIsSaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ask, _ := w.answering()
	w.node("n1", 1000)
	w.await(w.want(w.group("plain", nil), 1)[0], "placed", placed)
	for n := range 5 {
		id := fleet.NodeID(fmt.Sprint("gone", n))
		w.commit(store.Create(keys.Node(id), fleet.Node{ID: id, Runtimes: []fleet.NodeRuntime{}}))
	}
	golden.File(t, "lose-most.txt", read(w.simulate(ask, client.Question{Lose: &client.NodeQuestion{Node: "n1"}})))
}

func TestWhoWaitsAlreadyIsPlacedFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ask, _ := w.answering()
	w.node("n1", 15)
	g := w.group("lobby", nil)
	w.await(w.want(g, 1)[0], "placed", placed)
	for _, id := range w.want(g, 2) {
		w.await(id, "waiting", waiting(fleet.ReasonNoNodeFits))
	}
	golden.File(t, "place-behind.txt", read(w.simulate(ask, client.Question{Place: &client.PlaceQuestion{Group: "lobby", Count: 9}})))
}

func TestAnAnswerThatTakesTooLongIsGivenUpAndSaidToBe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule("a")
	w.node("n1", 1000)
	q := client.Question{Place: &client.PlaceQuestion{Group: w.group("lobby", nil).Name, Count: 20}}
	for _, left := range []int{10, 30} { // stop once while collecting requests, once while placing
		_, err := answer.Simulate(controller.MomentOf(w.view.Snapshot(), time.Now()), q, func() bool { left--; return left >= 0 })
		if !errs.Is(err, errs.Conflict) || !strings.Contains(errs.MessageOf(err), "fewer") || left != -1 {
			t.Errorf("%v, %d left", err, left)
		}
	}
}

func TestALossThatHappensIsTheOneThatWasSimulated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ask, _ := w.answering()
	w.node("n1", 1000)
	g := w.group("plain", nil)
	for _, id := range w.want(g, 9) {
		w.await(id, "placed", placed)
	}
	w.node("n2", 45)
	w.node("n3", 35)
	told := w.simulate(ask, client.Question{Lose: &client.NodeQuestion{Node: "n1"}})
	if told.Placed != 7 || told.Pending != 2 {
		t.Errorf("%d placed, %d pending", told.Placed, told.Pending)
	}
	session, err := store.Get(t.Context(), w.c, keys.NodeSession("n1"))
	if err != nil {
		t.Fatal(err)
	}
	w.commit(store.Remove(keys.NodeSession("n1"), session.ModRev))
	for n, id := range w.want(g, len(told.Instances)) {
		i := w.await(id, "decided", func(i *fleet.Instance) bool { return placed(i) || i.Pending != nil })
		if o := told.Instances[n]; i.Intent.Name != o.Name || i.Node() != o.Node || i.Port() != o.Port {
			t.Errorf("%s is on %s:%d, simulated %+v", i.Intent.Name, i.Node(), i.Port(), o)
		}
	}
}

func TestTheHigherPriorityIsReplacedFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ask, _ := w.answering()
	w.node("n1", 1000)
	for name, priority := range map[fleet.GroupName]int{"a-low": 0, "b-high": 5} {
		w.await(w.want(w.group(name, func(s *fleet.GroupSpec) { s.Priority = priority }), 1)[0], "placed", placed)
	}
	w.node("n2", 15)
	golden.File(t, "lose-priority.txt", read(w.simulate(ask, client.Question{Lose: &client.NodeQuestion{Node: "n1"}})))
}

func TestQuotasAndReservationsHoldInWhatIsSimulatedAndExplained(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ask, _ := w.answering()
	w.node("n1", 45)
	g := w.group("plain", func(s *fleet.GroupSpec) { s.Quota.Instances = 3 })
	ids := w.want(g, 4)
	for _, id := range ids[:3] {
		w.await(id, "placed", placed)
	}
	w.await(ids[3], "waiting", waiting(fleet.ReasonQuotaSpent))
	at := w.view.Snapshot().Rev
	e, err := ask.Explain(t.Context(), ids[3], at)
	if err != nil || e.Unfit == nil || e.Unfit.Reason != fleet.ReasonQuotaSpent {
		t.Errorf("explained as %+v, %v", e.Unfit, err)
	}
	if e, err := ask.Explain(t.Context(), ids[0], at); err != nil || e.Unfit != nil {
		t.Errorf("what is placed could not be: %+v, %v", e.Unfit, err)
	}
	w.group("kept", func(s *fleet.GroupSpec) { s.Reserved.MemoryMiB = 5 })
	told := w.simulate(ask, client.Question{Place: &client.PlaceQuestion{Group: w.group("other", nil).Name, Count: 3}})
	if told.Placed != 1 || told.Pending != 2 || told.Instances[2].Reason != fleet.ReasonReserved {
		t.Errorf("%+v", told)
	}
}

func TestAGroupIsSimulatedAsItWouldBe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ask, _ := w.answering()
	w.node("n1", 1000)
	g := w.group("lobby", nil)
	w.await(w.want(g, 1)[0], "placed", placed)
	large := g.Spec
	large.Resources.MemoryMiB = 1 << 20
	told := w.simulate(ask, client.Question{Place: &client.PlaceQuestion{Group: "lobby", Count: 1, Spec: &large}})
	if told.Pending != 1 || told.Instances[0].Name != "lobby-2" || told.Instances[0].Reason != fleet.ReasonNoNodeFits {
		t.Errorf("as it would be: %+v", told)
	}
	if told = w.simulate(ask, client.Question{Place: &client.PlaceQuestion{Group: "lobby", Count: 1}}); told.Placed != 1 {
		t.Errorf("as it is: %+v", told)
	}
	if told = w.simulate(ask, client.Question{Place: &client.PlaceQuestion{Group: "new", Count: 2, Spec: &g.Spec}}); told.Placed != 2 || told.Instances[1].Name != "new-2" || told.Instances[1].Node != "n1" {
		t.Errorf("as it is not yet: %+v", told)
	}
}
