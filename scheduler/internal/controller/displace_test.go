package controller

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// asked sends the pending evictions and processes the answer.
func (l *lagging) asked() {
	l.t.Helper()
	select {
	case a := <-l.ctl.evictor.answers:
		l.ctl.onEvictionResult(a, time.Now())
	case <-time.After(await.Patience):
		l.t.Fatal("nothing was asked for")
	}
}

// serve reports an instance as ready, as its agent does.
func (l *lagging) serve(id fleet.InstanceID) {
	l.t.Helper()
	i, _ := l.view.Snapshot().Instances.Get(id)
	l.write(store.Create(keys.Status(id), fleet.Status{
		Instance: id, Group: i.Intent.Group, Node: i.Placement.Node, Generation: 1, State: fleet.Online, Reason: fleet.ReasonReady, ChangedAt: time.Now(),
	}))
}

func TestWhatMetAChangeIsAskedForAgainAtOnce(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 10)
	low := l.taken("low", nil)
	l.serve(low)
	high := l.want("high", 1, preempts)[0]
	l.showAll()
	l.write(store.Create(keys.Report("n1"), reports.Report{Node: "n1"}))
	now := time.Now()
	l.ctl.pass(t.Context(), now)
	l.asked()
	if !l.ctl.evictor.pace.Ready(high).IsZero() {
		t.Fatal("it is to wait though nothing was made for it")
	}
	l.showAll()
	l.at(now.Add(retryPause))
	l.at(now.Add(2 * retryPause))
	l.asked()
	if _, err := store.Get(t.Context(), l.c, keys.Eviction(low)); err != nil {
		t.Error(err)
	}
}

func preempts(s *fleet.GroupSpec) { s.Priority, s.Preempts = 50, true }

func TestAMoveThatMetAChangeIsTriedAgain(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 100)
	ids := l.want("lobby", 5, func(s *fleet.GroupSpec) { s.Rebalance = true })
	l.settle()
	for _, id := range ids {
		l.serve(id)
	}
	l.node("n2", 100)
	l.showAll()
	l.write(store.Create(keys.Report("n1"), reports.Report{Node: "n1"}))
	now := time.Now().Add(time.Hour)
	l.ctl.pass(t.Context(), now)
	l.asked()
	if n := len(l.ctl.balancer.tried); n > 0 {
		t.Errorf("%d count as moved", n)
	}
	l.showAll()
	l.ctl.pass(t.Context(), now.Add(time.Minute))
	l.asked()
	if n := len(l.ctl.balancer.tried); n != 1 {
		t.Errorf("%d count as moved", n)
	}
}

func TestWhenPlayersLeaveOneThatMayMakeRoomItIsAskedTo(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 10)
	low := l.taken("low", nil)
	l.serve(low)
	l.report(reports.Report{Node: "n1", Instances: map[fleet.InstanceID]reports.InstanceReport{low: {Players: 1}}})
	l.want("high", 1, preempts)
	l.settle()
	l.ctl.resynced = time.Now().Add(time.Hour)
	l.report(reports.Report{Node: "n1", Instances: map[fleet.InstanceID]reports.InstanceReport{low: {}}})
	l.showAll()
	now := time.Now().Add(time.Minute)
	l.at(now)
	l.at(now)
	l.asked()
	if _, err := store.Get(t.Context(), l.c, keys.Eviction(low)); err != nil {
		t.Error(err)
	}
}
