package controller

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// deploy requests a deployment as the gateway does.
func (w *world) deploy(name fleet.GroupName, number int64, edit func(*deployment.Deployment)) {
	w.t.Helper()
	g, _ := w.view.Snapshot().Groups.Get(name)
	var r deployment.Requested
	o, _ := r.Complete(&g.Spec, deployment.Rolling)
	d := deployment.Deployment{
		Group: name, Number: number, Trigger: deployment.TriggerManual, Strategy: deployment.Rolling, Options: o,
		GroupRevision: g.Revision, Spec: g.Spec, CreatedAt: time.Now().UTC(), By: "alice",
	}
	edit(&d)
	w.commit(store.Create(keys.Deployment(name, number), d))
}

// untilDeployment waits until a deployment is in a state.
func (w *world) untilDeployment(name fleet.GroupName, number int64, state deployment.State) *deployment.Progress {
	w.t.Helper()
	s := w.until("a deployment that is "+string(state), func(s *view.Snapshot) bool {
		j, ok := s.Deployment(name, number)
		return ok && j.Progress != nil && j.Progress.State == state
	})
	j, _ := s.Deployment(name, number)
	return j.Progress
}

// untilNew waits for an instance made under a deployment that no agent knows yet.
func (w *world) untilNew(name fleet.GroupName, number int64) fleet.InstanceID {
	w.t.Helper()
	var id fleet.InstanceID
	w.until("a new instance", func(s *view.Snapshot) bool {
		for i := range s.GroupInstances(name) {
			if i.Intent.Deployment == number && i.NeedsPlacement() {
				id = i.Intent.ID
			}
		}
		return id != ""
	})
	return id
}

// untilStopping waits for an order to stop an instance with a lower number, and reports its end.
func (w *world) untilStopping(name fleet.GroupName, number int64) {
	w.t.Helper()
	var id fleet.InstanceID
	w.until("an order to stop", func(s *view.Snapshot) bool {
		for i := range s.GroupInstances(name) {
			if i.Intent.Deployment < number && i.Order != nil && !i.Terminal() {
				id = i.Intent.ID
			}
		}
		return id != ""
	})
	w.report(id, fleet.Stopped, fleet.ReasonStopRequested)
}

func quickly() plan.Limits {
	l := plan.DefaultLimits()
	l.RetireGrace = time.Millisecond
	return l
}

func TestADeploymentContinuesWithTheNextEnforcerAtEachStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, stop := w.enforcer("a", quickly())
	w.group("lobby", func(g *fleet.Group) { g.Spec.Scaling.Min = 2 })
	for _, i := range w.untilLiving("lobby", 2) {
		w.online(i.Intent.ID)
	}
	next := func(replica string) {
		stop()
		_, stop = w.enforcer(replica, quickly())
	}
	w.deploy("lobby", 1, func(*deployment.Deployment) {})
	first := w.untilNew("lobby", 1)
	next("b")
	w.online(first)
	w.untilStopping("lobby", 1)
	next("c")
	second := w.untilNew("lobby", 1)
	if second == first {
		t.Fatalf("%s was replaced again", first)
	}
	w.online(second)
	next("d")
	w.untilStopping("lobby", 1)
	if p := w.untilDeployment("lobby", 1, deployment.Completed); p.Total != 2 || p.Updated != 2 || p.FinishedAt.IsZero() {
		t.Errorf("%+v", p)
	}
	for _, i := range w.untilLiving("lobby", 2) {
		if i.Intent.Deployment != 1 {
			t.Errorf("%s was not replaced", i.Intent.ID)
		}
	}
}

func TestNothingStartsUnderADeploymentThatAUserEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enforcer("a", quickly())
	w.group("lobby", func(g *fleet.Group) { g.Spec.Scaling.Min = 1 })
	original := w.untilLiving("lobby", 1)[0].Intent.ID
	w.online(original)
	w.deploy("lobby", 1, func(*deployment.Deployment) {})
	replacement := w.untilNew("lobby", 1)
	w.place(replacement)
	j, _ := w.view.Snapshot().Deployment("lobby", 1)
	canceled := *j.Deployment
	canceled.Canceled = true
	w.commit(store.Replace(keys.Deployment("lobby", 1), canceled, j.ModRev))
	w.untilDeployment("lobby", 1, deployment.Canceled)
	w.untilOrder(replacement, fleet.OrderStop)
	w.report(replacement, fleet.Stopped, fleet.ReasonStopRequested)
	if got := w.untilLiving("lobby", 1)[0]; got.Intent.ID != original || got.Intent.ReplacedBy != "" {
		t.Errorf("%s lives, replaced by %q", got.Intent.ID, got.Intent.ReplacedBy)
	}
}

func TestADeletedGroupTakesItsDeploymentsAlong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enforcer("a", quickly())
	w.group("lobby", func(*fleet.Group) {})
	w.deploy("lobby", 1, func(*deployment.Deployment) {})
	w.untilDeployment("lobby", 1, deployment.Completed)
	w.change("lobby", func(g *fleet.Group) { g.Deleting = true })
	w.until("nothing of the group", func(s *view.Snapshot) bool {
		_, there := s.Groups.Get("lobby")
		return !there && len(s.Deployments("lobby")) == 0
	})
}
