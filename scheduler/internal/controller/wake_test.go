package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// settle lets the controller see everything and decide until nothing changes any more. No
// time passes, so the timer cannot help.
func (l *lagging) settle() {
	l.t.Helper()
	for range 6 {
		l.showAll()
		l.pass()
	}
}

// renode changes the record of n1.
func (l *lagging) renode(change func(*fleet.Node)) {
	l.t.Helper()
	n, _ := l.view.Snapshot().Nodes.Get("n1")
	next := *n
	change(&next)
	l.write(store.Replace(keys.Node("n1"), next, n.ModRev))
}

func (l *lagging) desire(d fleet.NodeDesired) {
	l.t.Helper()
	rev := int64(0)
	if have, ok := l.view.Snapshot().NodesDesired.Get(d.Node); ok {
		rev = have.ModRev
	}
	l.write(store.Replace(keys.NodeDesired(d.Node), d, rev))
}

func (l *lagging) report(r reports.Report) {
	l.t.Helper()
	rev := int64(0)
	if have, ok := l.view.Snapshot().Reports.Get(r.Node); ok {
		rev = have.ModRev
	}
	l.write(store.Replace(keys.Report(r.Node), r, rev))
}

// respec changes a group's spec.
func (l *lagging) respec(name fleet.GroupName, change func(*fleet.GroupSpec)) {
	l.t.Helper()
	g, _ := l.view.Snapshot().Groups.Get(name)
	next := *g
	next.Revision++
	change(&next.Spec)
	l.write(store.Replace(keys.Group(name), next, g.ModRev))
}

// end reports a placed instance as ended, as its agent does.
func (l *lagging) end(id fleet.InstanceID) {
	l.t.Helper()
	i, _ := l.view.Snapshot().Instances.Get(id)
	rev := int64(0)
	if i.Status != nil {
		rev = i.Status.ModRev
	}
	l.write(store.Replace(keys.Status(id), fleet.Status{
		Instance: id, Node: i.Placement.Node, Generation: i.Intent.Generation, State: fleet.Stopped, Reason: fleet.ReasonStopRequested, FinishedAt: time.Now(),
	}, rev))
}

// taken creates and places an instance of another group.
func (l *lagging) taken(group fleet.GroupName, change func(*fleet.GroupSpec)) fleet.InstanceID {
	l.t.Helper()
	id := l.want(group, 1, change)[0]
	l.settle()
	if len(l.placedOn(id)) == 0 {
		l.t.Fatalf("%s has no place", group)
	}
	return id
}

// Each change that may make an instance fit must cause a retry without the timer.
func TestWhateverMakesItFitWakesWhoWaits(t *testing.T) {
	t.Parallel()
	template := content.TemplateRef{Group: "default", Name: "maps"}
	tests := map[string]struct {
		ask    func(*fleet.GroupSpec)
		before func(l *lagging) (free func())
	}{
		"a node's capacity grows": {
			before: func(l *lagging) func() {
				l.node("n1", 5)
				return func() { l.renode(func(n *fleet.Node) { n.Capacity.MemoryMiB = 10 }) }
			},
		},
		"a cordon ends": {
			before: func(l *lagging) func() {
				l.node("n1", 100)
				l.desire(fleet.NodeDesired{Node: "n1", Cordoned: true})
				return func() { l.desire(fleet.NodeDesired{Node: "n1"}) }
			},
		},
		"a label is set": {
			ask: func(s *fleet.GroupSpec) { s.Where.Affinity = []string{"zone=a"} },
			before: func(l *lagging) func() {
				l.node("n1", 100)
				return func() { l.desire(fleet.NodeDesired{Node: "n1", Labels: map[string]string{"zone": "a"}}) }
			},
		},
		"a label that keeps it away goes": {
			ask: func(s *fleet.GroupSpec) { s.Where.AntiAffinity = []string{"slow"} },
			before: func(l *lagging) func() {
				l.node("n1", 100)
				l.desire(fleet.NodeDesired{Node: "n1", Labels: map[string]string{"slow": "1"}})
				return func() { l.desire(fleet.NodeDesired{Node: "n1"}) }
			},
		},
		"the runtime is offered": {
			ask: func(s *fleet.GroupSpec) { s.Runtime = fleet.RuntimeTmux },
			before: func(l *lagging) func() {
				l.node("n1", 100)
				return func() {
					l.renode(func(n *fleet.Node) { n.Runtimes = []fleet.NodeRuntime{{Name: fleet.RuntimeTmux, Offered: true}} })
				}
			},
		},
		"the session is back": {
			before: func(l *lagging) func() {
				rev := l.node("n1", 100)
				l.write(store.Remove(keys.NodeSession("n1"), rev))
				return func() { l.write(store.Create(keys.NodeSession("n1"), fleet.NodeSession{Node: "n1"})) }
			},
		},
		"the node may hold more instances": {
			before: func(l *lagging) func() {
				l.node("n1", 100)
				l.desire(fleet.NodeDesired{Node: "n1", Room: &fleet.NodeRoom{MaxInstances: 1}})
				l.taken("other", nil)
				return func() { l.desire(fleet.NodeDesired{Node: "n1"}) }
			},
		},
		"an instance's memory is free": {
			before: func(l *lagging) func() {
				l.node("n1", 10)
				id := l.taken("other", nil)
				return func() { l.end(id) }
			},
		},
		"an instance's port is free": {
			ask: func(s *fleet.GroupSpec) { s.Ports = fleet.PortRange{Start: 30000, End: 30000} },
			before: func(l *lagging) func() {
				l.node("n1", 100)
				id := l.taken("other", func(s *fleet.GroupSpec) { s.Ports = fleet.PortRange{Start: 30000, End: 30000} })
				return func() { l.end(id) }
			},
		},
		"a stranger's port is said to be free": {
			ask: func(s *fleet.GroupSpec) { s.Ports = fleet.PortRange{Start: 30000, End: 30000} },
			before: func(l *lagging) func() {
				l.node("n1", 100)
				l.renode(func(n *fleet.Node) {
					n.BlockedPorts = []fleet.BlockedPort{{Port: 30000, Until: time.Now().Add(time.Hour)}}
				})
				return func() { l.renode(func(n *fleet.Node) { n.BlockedPorts = nil }) }
			},
		},
		"the group that has the node for itself leaves it": {
			before: func(l *lagging) func() {
				l.node("n1", 100)
				id := l.taken("other", func(s *fleet.GroupSpec) { s.Where.Alone = true })
				return func() { l.end(id) }
			},
		},
		"others leave the node it wants for itself": {
			ask: func(s *fleet.GroupSpec) { s.Where.Alone = true },
			before: func(l *lagging) func() {
				l.node("n1", 100)
				id := l.taken("other", nil)
				return func() { l.end(id) }
			},
		},
		"the disk has a little more room": {
			ask: func(s *fleet.GroupSpec) { s.Templates.AllOf = []content.TemplateLayer{{TemplateRef: template}} },
			before: func(l *lagging) func() {
				l.node("n1", 100)
				digest := fmt.Sprintf("%064d", 1)
				l.write(store.Create(keys.TemplateVersion(template, digest), content.TemplateVersion{TemplateRef: template, Digest: digest}))
				l.write(store.Create(keys.TemplateHead(template), content.TemplateHead{TemplateRef: template, Digest: digest, SizeBytes: 100 << 20}))
				l.report(reports.Report{Node: "n1", DiskFreeMiB: 90})
				return func() { l.report(reports.Report{Node: "n1", DiskFreeMiB: 100}) }
			},
		},
		"the node uses less of its processors": {
			before: func(l *lagging) func() {
				l.node("n2", 10)
				l.taken("other", nil)
				l.node("n1", 100)
				l.report(reports.Report{Node: "n1", CPU: 0.9})
				return func() { l.report(reports.Report{Node: "n1", CPU: 0.7}) }
			},
		},
		"the other nodes are as busy": {
			before: func(l *lagging) func() {
				l.node("n2", 10)
				l.taken("other", nil)
				l.node("n1", 100)
				l.report(reports.Report{Node: "n1", CPU: 0.9})
				return func() { l.report(reports.Report{Node: "n2", CPU: 0.9}) }
			},
		},
		"a quota is raised": {
			ask: func(s *fleet.GroupSpec) { s.Labels = map[string]string{"tenant": "a"} },
			before: func(l *lagging) func() {
				l.node("n1", 100)
				q := cluster.Quota{Name: "a", Selector: map[string]string{"tenant": "a"}, Limit: fleet.Budget{MemoryMiB: 5}}
				rev := l.write(store.Create(keys.Quota("a"), q))
				return func() {
					q.Limit.MemoryMiB = 10
					l.write(store.Replace(keys.Quota("a"), q, rev))
				}
			},
		},
		"a reservation of others ends": {
			before: func(l *lagging) func() {
				l.node("n1", 100)
				l.want("other", 0, func(s *fleet.GroupSpec) { s.Reserved.MemoryMiB = 95 })
				return func() { l.respec("other", func(s *fleet.GroupSpec) { s.Reserved.MemoryMiB = 0 }) }
			},
		},
		"the room that was kept for another is let go": {
			before: func(l *lagging) func() {
				l.node("n1", 10)
				id := l.taken("other", nil)
				first := l.want("first", 1, on("n9"))[0] // n9 cannot take it
				e := fleet.Eviction{Instance: id, Generation: 1, Node: "n1", Reason: fleet.ReasonPreempted, For: first}
				rev := l.write(store.Create(keys.Eviction(id), e))
				l.settle()
				l.end(id)
				i, _ := l.view.Snapshot().Instances.Get(first)
				stopped := i.Intent
				stopped.Desired = fleet.DesiredStopped
				return func() {
					l.write(store.Replace(keys.Intent(first), stopped, i.Intent.ModRev), store.Remove(keys.Eviction(id), rev))
				}
			},
		},
	}
	for what, c := range tests {
		t.Run(what, func(t *testing.T) {
			l := newLagging(t)
			free := c.before(l)
			ids := l.want("lobby", 1, c.ask)
			l.settle()
			if on := l.placed(ids); len(on) > 0 {
				t.Fatal("it need not wait")
			}
			l.ctl.resynced = time.Now().Add(time.Hour)
			free()
			l.settle()
			if on := l.placed(ids); len(on) == 0 {
				t.Errorf("it waits still: %+v", l.note(ids[0]))
			}
		})
	}
}

func TestWhenASpreadBecomesMoreEvenThoseThatWaitForThatGoOn(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 100)
	l.node("n2", 100)
	l.desire(fleet.NodeDesired{Node: "n1", Labels: map[string]string{"zone": "a"}})
	l.desire(fleet.NodeDesired{Node: "n2", Labels: map[string]string{"zone": "b"}})
	l.taken("other", func(s *fleet.GroupSpec) {
		s.Where.Nodes, s.Resources.MemoryMiB = []fleet.NodeID{"n2"}, 95
	})
	ids := l.want("lobby", 2, func(s *fleet.GroupSpec) { s.Where.Spread, s.Where.MaxSkew = "zone", 1 })
	l.settle()
	if on := l.placed(ids); len(on) != 1 {
		t.Fatalf("%d placed, want one in zone a and the other waiting for b", len(on))
	}
	l.ctl.resynced = time.Now().Add(time.Hour)
	l.respec("lobby", func(s *fleet.GroupSpec) { s.Resources.MemoryMiB = 5 })
	smaller := l.more("lobby", 1)
	l.settle()
	if on := l.placed(append(ids, smaller...)); len(on) != 3 {
		t.Errorf("%d of 3 placed once a smaller one has gone to zone b", len(on))
	}
}

func TestAllThatAreOnSharedStorageAreFreedByTheEndOfADeletedNode(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 100)
	ids := l.want("world", 5, func(s *fleet.GroupSpec) { s.Static.Enabled, s.OnNodeLoss = true, fleet.NodeLossReplace })
	l.settle()
	l.node("n2", 100)
	session, _ := l.view.Snapshot().NodeSessions.Get("n1")
	l.write(store.Remove(keys.NodeSession("n1"), session.ModRev))
	for _, id := range ids {
		l.end(id)
		i, _ := l.view.Snapshot().Instances.Get(id)
		next := i.Intent
		next.Generation++
		l.write(store.Replace(keys.Intent(id), next, i.Intent.ModRev))
	}
	l.settle()
	l.ctl.resynced = time.Now().Add(time.Hour)
	n, _ := l.view.Snapshot().Nodes.Get("n1")
	l.write(store.Remove(keys.Node("n1"), n.ModRev))
	l.settle()
	for _, id := range ids {
		if i, _ := l.view.Snapshot().Instances.Get(id); i.Placement.Node != "n2" {
			t.Errorf("%s is not on n2: %+v", id, i.Pending)
		}
	}
}

func TestTheEndOfAMoveFreesWhoTookThePlace(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 100)
	first := l.taken("lobby", nil)
	rev := l.write(store.Create(keys.Eviction(first), fleet.Eviction{Instance: first, Generation: 1, Node: "n1", To: "n2", Reason: fleet.ReasonRebalanced}))
	second := l.moreWith("lobby", 1, fleet.ReasonRebalanced, first)[0]
	l.settle()
	if l.note(second).Reason != fleet.ReasonNoNodeFits {
		t.Fatalf("%+v", l.note(second))
	}
	l.ctl.resynced = time.Now().Add(time.Hour)
	l.write(store.Remove(keys.Eviction(first), rev))
	l.settle()
	l.wantOn(second, "n1")
}

func TestTheTimerHelpsThoughSomebodyElseWakesTheControllerMoreOften(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 5)
	l.want("lobby", 1, func(s *fleet.GroupSpec) { s.Rebalance = true })
	l.settle()
	now := time.Now()
	room, looks := l.ctl.state.capacityVersion, 0
	for ; now.Before(time.Now().Add(2 * resync)); looks++ {
		now = now.Add(l.ctl.pass(t.Context(), now))
	}
	if got := l.ctl.state.capacityVersion - room; got < 2 || looks > 200 {
		t.Errorf("in %v of %d passes everything was looked at again %d times", 2*resync, looks, got)
	}
}

func TestRoomIsKeptForWhoLostARaceForIt(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 10)
	id := l.taken("other", nil)
	first := l.want("first", 1, nil)[0]
	l.write(store.Create(keys.Eviction(id), fleet.Eviction{Instance: id, Generation: 1, Node: "n1", Reason: fleet.ReasonPreempted, For: first}))
	l.settle()
	l.end(id)
	l.showAll()
	a, err := store.Get(t.Context(), l.c, keys.Alloc("n1"))
	if err != nil {
		t.Fatal(err)
	}
	l.write(touch("n1", a.ModRev))
	l.pass() // the first loses
	if len(l.placedOn(first)) > 0 {
		t.Fatal("it did not lose")
	}
	if _, kept := l.ctl.state.nominated[first]; !kept {
		t.Error("nothing is kept for it any more")
	}
	l.settle()
	l.wantOn(first, "n1")
}

func TestRoomIsKeptOnTheTargetOfAMove(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 10)
	id := l.taken("world", func(s *fleet.GroupSpec) { s.Static.Enabled = true })
	l.node("n2", 15)
	moving := move.Move{ID: "m", Instance: id, Group: "world", Source: "n1", Target: "n2", Generation: 1, Step: move.Copying}
	rev := l.write(store.Create(keys.Move(id), moving))
	l.settle()
	other := l.want("other", 1, nil)[0]
	l.settle()
	if on := l.placedOn(other); len(on) > 0 {
		t.Fatalf("an ordinary instance took the room of the move on %v", on)
	}
	l.ctl.state.rebuild(l.view.Snapshot(), time.Now(), false)
	l.settle()
	if on := l.placedOn(other); len(on) > 0 {
		t.Fatalf("after a rebuild it took the room on %v", on)
	}
	moving.Step = move.Canceled
	l.write(store.Replace(keys.Move(id), moving, rev))
	l.settle()
	l.wantOn(other, "n2")
}

func TestAMovedInstanceTakesTheRoomThatIsKeptForIt(t *testing.T) {
	t.Parallel()
	l := newLagging(t)
	l.node("n1", 10)
	id := l.taken("world", func(s *fleet.GroupSpec) { s.Static.Enabled = true })
	l.node("n2", 25)
	l.write(store.Create(keys.Move(id), move.Move{ID: "m", Instance: id, Group: "world", Source: "n1", Target: "n2", Generation: 1, Step: move.Starting}))
	l.end(id)
	l.settle()
	i, _ := l.view.Snapshot().Instances.Get(id)
	next := i.Intent
	next.Generation, next.MovesTo = 2, &fleet.DataCopy{Node: "n2", Generation: 1}
	l.write(store.Replace(keys.Intent(id), next, i.Intent.ModRev))
	l.settle()
	l.wantOn(id, "n2")
	if kept := len(l.ctl.state.nominated); kept > 0 {
		t.Errorf("room is kept for %d instances that are placed", kept)
	}
	other := l.want("other", 1, on("n2"))[0]
	l.settle()
	l.wantOn(other, "n2")
}
