package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// fail reports that a placed instance could not start.
func (w *world) fail(i *fleet.Instance, reason fleet.Reason) {
	w.t.Helper()
	w.commit(store.Create(keys.Status(i.Intent.ID), fleet.Status{
		Instance: i.Intent.ID, Node: i.Placement.Node, Generation: i.Intent.Generation,
		State: fleet.Failed, Reason: reason, FinishedAt: time.Now(),
	}))
}

// placeOne creates an instance of a group and waits for its placement.
func (w *world) placeOne(g *fleet.Group) *fleet.Instance {
	w.t.Helper()
	return w.await(w.want(g, 1)[0], "placed", placed)
}

func TestANodeThatKeepsFailingARevisionIsAvoided(t *testing.T) {
	t.Parallel()
	for _, replica := range []string{"that saw it happen", "that found it"} {
		t.Run("by a scheduler "+replica, func(t *testing.T) {
			w := newWorld(t)
			w.node("broken", 100_000)
			g := w.group("lobby", nil)
			stop := w.schedule("first")
			for range 5 {
				w.fail(w.placeOne(g), fleet.ReasonPrepareFailed)
			}
			w.node("sound", 100)
			if replica == "that found it" {
				stop()
				w.schedule("second")
			}
			if i := w.placeOne(g); i.Placement.Node != "sound" || i.Placement.Score.Parts()["failures"] != 0 {
				t.Errorf("placed by %+v", i.Placement)
			}
			other := w.group("other", nil)
			if i := w.placeOne(other); i.Placement.Node != "broken" {
				t.Errorf("another group was placed by %+v", i.Placement)
			}
		})
	}
}

// restarted reports a number of restarts in place.
func (w *world) restarted(i *fleet.Instance, times int) {
	w.t.Helper()
	i, _ = w.view.Snapshot().Instances.Get(i.Intent.ID)
	rev := int64(0)
	if i.Status != nil {
		rev = i.Status.ModRev
	}
	w.commit(store.Replace(keys.Status(i.Intent.ID), fleet.Status{
		Instance: i.Intent.ID, Node: i.Placement.Node, Generation: i.Intent.Generation, Restarts: times,
		State: fleet.Starting, Reason: fleet.ReasonRestartedInPlace, Exit: &fleet.Exit{Code: 1, Known: true}, ChangedAt: time.Now(),
	}, rev))
}

func TestWhatIsStartedAgainInPlaceIsAFailureEachTime(t *testing.T) {
	t.Parallel()
	for _, replica := range []string{"that saw it happen", "that found it"} {
		t.Run("by a scheduler "+replica, func(t *testing.T) {
			w := newWorld(t)
			w.node("broken", 100_000)
			g := w.group("lobby", func(s *fleet.GroupSpec) { s.OnCrash = fleet.CrashRestart })
			stop := w.schedule("first")
			i := w.placeOne(g)
			for n := range 5 {
				w.restarted(i, n+1)
			}
			w.node("sound", 100)
			if replica == "that found it" {
				stop()
				w.schedule("second")
			}
			if i := w.placeOne(g); i.Placement.Node != "sound" {
				t.Errorf("placed by %+v", i.Placement)
			}
		})
	}
}

func TestAStrangersPortIsNoFailureOfTheNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("big", 100_000)
	g := w.group("lobby", nil)
	w.schedule("s")
	for range 5 {
		w.fail(w.placeOne(g), fleet.ReasonPortTaken)
	}
	w.node("small", 100)
	if i := w.placeOne(g); i.Placement.Node != "big" {
		t.Errorf("placed by %+v", i.Placement)
	}
}

func TestANodeStaysAGroupsOwnWhenAnotherSchedulerTakesOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("n", 1000)
	stop := w.schedule("first")
	alone := w.group("alone", func(s *fleet.GroupSpec) { s.Where.Alone = true })
	w.placeOne(alone)
	stop()
	w.schedule("second")
	refused := w.await(w.want(w.group("other", nil), 1)[0], "refused", waiting(fleet.ReasonNoNodeFits))
	if !strings.Contains(refused.Pending.Message, "n belongs to instances of alone") {
		t.Errorf("it says %q", refused.Pending.Message)
	}
	w.placeOne(alone)
}

func TestTheOperatorsRoomReplacesTheAgents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("n", 1000)
	w.commit(store.Create(keys.NodeDesired("n"), fleet.NodeDesired{Node: "n", Room: &fleet.NodeRoom{MaxInstances: 1}}))
	w.schedule("s")
	g := w.group("lobby", nil)
	w.placeOne(g)
	refused := w.await(w.want(g, 1)[0], "refused", waiting(fleet.ReasonNoNodeFits))
	if !strings.Contains(refused.Pending.Message, "raise its maxInstances") {
		t.Errorf("it says %q", refused.Pending.Message)
	}
	d, _ := w.view.Snapshot().NodesDesired.Get("n")
	w.commit(store.Replace(keys.NodeDesired("n"), fleet.NodeDesired{Node: "n"}, d.ModRev))
	w.await(refused.Intent.ID, "placed", placed)
}

func TestAConstraintThatCannotBeReadSaysWhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("n", 1000)
	w.schedule("s")
	g := w.group("lobby", func(s *fleet.GroupSpec) { s.Where.Affinity = []string{"zone", "zone in ("} })
	refused := w.await(w.want(g, 1)[0], "refused", waiting(fleet.ReasonBadConstraint))
	if !strings.Contains(refused.Pending.Message, "nodeAffinity[1]: a value is missing at character 10") {
		t.Errorf("it says %q", refused.Pending.Message)
	}
}

func TestTemplatesLargerThanTheFreeDiskWaitForRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("n", 1000)
	ref := content.TemplateRef{Group: "default", Name: "maps"}
	digest := strings.Repeat("a", 64)
	w.commit(
		store.Create(keys.TemplateVersion(ref, digest), content.TemplateVersion{TemplateRef: ref, Digest: digest}),
		store.Create(keys.TemplateHead(ref), content.TemplateHead{TemplateRef: ref, Digest: digest, SizeBytes: 3 << 30}),
		store.Create(keys.Report("n"), reports.Report{Node: "n", DiskMiB: 9000}))
	w.schedule("s")
	g := w.group("lobby", func(s *fleet.GroupSpec) { s.Templates.AllOf = []content.TemplateLayer{{TemplateRef: ref}} })
	refused := w.await(w.want(g, 1)[0], "refused", waiting(fleet.ReasonNoNodeFits))
	if !strings.Contains(refused.Pending.Message, "the disk of n has 0 MiB free, its templates hold 3072: free 3072 MiB there") {
		t.Errorf("it says %q", refused.Pending.Message)
	}
	r, _ := w.view.Snapshot().Reports.Get("n")
	w.commit(store.Replace(keys.Report("n"), reports.Report{Node: "n", DiskMiB: 9000, DiskFreeMiB: 4000}, r.ModRev))
	w.await(refused.Intent.ID, "placed", placed)
}

func TestReasonsOfWhateverLengthAreWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("n1", 1000)
	w.schedule("s")
	g := w.group("lobby", func(s *fleet.GroupSpec) {
		for n := range 250 {
			s.Where.Nodes = append(s.Where.Nodes, fleet.NodeID(fmt.Sprintf("%063d", n)))
		}
		s.Where.Affinity = []string{"zone in (" + strings.Repeat("a, ", 5000) + "b)"}
	})
	ids := w.want(g, 100)
	unreadable := w.group("unreadable", func(s *fleet.GroupSpec) {
		s.Where.Affinity = slices.Repeat([]string{strings.Repeat("x", 100) + " is y"}, 250)
	})
	for _, id := range ids {
		if i := w.await(id, "refused", waiting(fleet.ReasonNoNodeFits)); len(i.Pending.Message) > 1000 {
			t.Fatalf("it says %d bytes", len(i.Pending.Message))
		}
	}
	for _, id := range w.want(unreadable, 100) {
		i := w.await(id, "refused", waiting(fleet.ReasonBadConstraint))
		if !strings.HasSuffix(i.Pending.Message, "and 245 more; correct the group") {
			t.Fatalf("it says %q", i.Pending.Message)
		}
	}
}
