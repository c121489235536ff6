package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// exclusive makes the group and its plans static and movable.
func exclusive(s *sim) {
	s.group.Spec.Static.Enabled, s.group.Spec.OnNodeLoss, s.group.Spec.Scaling.Min = true, fleet.NodeLossReplace, 1
	s.plans["plan"].Static, s.plans["plan"].OnNodeLoss = true, fleet.NodeLossReplace
}

func TestLostNodes(t *testing.T) {
	offline := in(lost, fleet.Offline, fleet.ReasonNodeLost, at(-time.Minute))
	tests := []struct {
		rule  string
		setup func(*sim)
		wake  time.Duration
		want  []string
	}{
		{"what a node without a session holds is lost", func(s *sim) {
			s.add(manual, in(lost, fleet.Online, fleet.ReasonReady, at(-time.Hour)))
			s.add(manual, placedOn(lost, at(-time.Minute)))
		}, 0, []string{"lose i00001: NodeLost", "lose i00002: NodeLost"}},
		{"an agent that restarts has time to open its session", func(s *sim) {
			s.lostSince = at(-400 * time.Millisecond)
			s.add(manual, in(lost, fleet.Online, fleet.ReasonReady, at(-time.Hour)))
		}, 100 * time.Millisecond, nil},
		{"a lost node says nothing of a later generation that another node reports", func(s *sim) {
			i := s.add(manual, online)
			i.Placement.Node, i.Status.Generation = lost, 2
		}, 0, nil},
		{"and what a lost node ran without a placement is not moved", func(s *sim) {
			exclusive(s)
			s.add(in(lost, fleet.Online, fleet.ReasonReady, at(-time.Hour))).Placement = nil
		}, 0, nil},
		{"what has ended is not lost", func(s *sim) {
			s.add(manual, in(lost, fleet.Stopped, fleet.ReasonStopRequested, at(0)), wantsStop(false))
		}, keep, nil},
		{"a lost instance of the minimum is replaced", func(s *sim) {
			s.group.Spec.Scaling.Min = 2
			s.add(online)
			s.add(offline)
		}, 0, []string{"create minimum for i00002: Replacement"}},
		{"a frozen one is not, and keeps its place in the group", func(s *sim) {
			s.group.Spec.Scaling.Min = 2
			s.add(online)
			s.add(offline, func(i *fleet.Instance) { i.Intent.Frozen = true })
		}, 0, nil},
		{"nor when its node, which runs it exclusively, is lost for good", func(s *sim) {
			exclusive(s)
			s.group.Spec.Scaling.Min = 1
			s.add(offline, func(i *fleet.Instance) { i.Intent.Frozen = true })
		}, 0, nil},
		{"but first it waits for further losses", func(s *sim) {
			s.lostSince, s.group.Spec.Scaling.Min = at(-time.Second), 1
			s.add(offline)
		}, 1500 * time.Millisecond, nil},
		{"which a setting shortens", func(s *sim) {
			s.lostSince, s.limits.LossWait, s.group.Spec.Scaling.Min = at(-time.Second), 200*time.Millisecond, 1
			s.add(offline)
		}, 0, []string{"create minimum for i00001: Replacement"}},
		{"it waits for them again after a mass outage", func(s *sim) {
			s.outage.MassUntil, s.group.Spec.Scaling.Min = at(-2*time.Second), 1
			s.add(offline)
		}, 500 * time.Millisecond, nil},
		{"it is not replaced once its node is back, whose agent is about to report", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(in(alive, fleet.Offline, fleet.ReasonNodeLost, at(-time.Minute)))
		}, 0, nil},
		{"one started by hand is replaced as such", func(s *sim) {
			s.add(manual, offline)
		}, 0, []string{"create manual for i00001: Replacement"}},
		{"it is replaced once", func(s *sim) {
			first := s.add(manual, offline)
			second := s.add(manual, online)
			first.Intent.ReplacedBy, second.Intent.Replaces = second.Intent.ID, first.Intent.ID
		}, 0, nil},
		{"wait keeps its place", func(s *sim) {
			s.group.Spec.OnNodeLoss, s.group.Spec.Scaling.Min = fleet.NodeLossWait, 1
			s.add(offline)
		}, 0, nil},
		{"stop wants it no more, and the minimum holds", func(s *sim) {
			s.group.Spec.OnNodeLoss, s.group.Spec.Scaling.Min = fleet.NodeLossStop, 1
			s.add(offline)
			s.add(manual, offline)
		}, 0, []string{"create minimum: BelowMinimum", "stop i00001 by stop: NodeLost", "stop i00002 by stop: NodeLost"}},
		{"it stops nothing before further losses had time to show", func(s *sim) {
			s.group.Spec.OnNodeLoss, s.lostSince = fleet.NodeLossStop, at(-time.Second)
			s.add(manual, offline)
		}, 1500 * time.Millisecond, nil},
		{"a static instance waits by default", func(s *sim) {
			s.group.Spec.Static.Enabled, s.group.Spec.Scaling.Min = true, 1
			s.add(offline)
		}, 0, nil},
		{"a static instance is moved where its group says so", func(s *sim) {
			exclusive(s)
			s.add(offline)
		}, 0, []string{"again i00001: NodeLost"}},
		{"but not before the old copy must be gone: the session may have ended a TTL before its owner's deadline", func(s *sim) {
			exclusive(s)
			s.lostSince = at(-ttl - time.Second)
			s.add(offline)
		}, time.Second, nil},
		{"unless its agent ended it before it closed its session", func(s *sim) {
			exclusive(s)
			s.released[lost], s.lostSince = true, at(-time.Second)
			s.add(offline)
		}, 0, []string{"again i00001: NodeLost"}},
		{"nor ever when it was not started as one that may be moved: nothing ends the old copy", func(s *sim) {
			exclusive(s)
			s.plans["plan"].OnNodeLoss = fleet.NodeLossWait
			s.add(offline)
		}, 0, nil},
		{"nor when nobody knows how it was started", func(s *sim) {
			exclusive(s)
			s.add(offline).Placement.Plan = "gone"
		}, 0, nil},
		{"what counts is the run that was lost, not the one asked for since", func(s *sim) {
			exclusive(s)
			s.plans["new"] = s.plans["plan"]
			s.plans["plan"] = &fleet.Plan{Static: true, OnNodeLoss: fleet.NodeLossWait}
			i := s.add(offline)
			i.Intent.Generation, i.Intent.Plan, i.Status.ModRev = 2, "new", 9
		}, 0, nil},
		{"it is moved once", func(s *sim) {
			exclusive(s)
			s.add(offline).Intent.Generation = 2
		}, 0, nil},
		{"and once more after another loss", func(s *sim) {
			exclusive(s)
			i := s.add(offline)
			i.Intent.Generation, i.Intent.Leaves, i.Status.ModRev = 2, 7, 9
		}, 0, []string{"again i00001: NodeLost"}},
		{"and once more when its node joined meanwhile, even if its agent reported nothing", func(s *sim) {
			exclusive(s)
			i := s.add(offline)
			i.Intent.Generation, i.Intent.Leaves, i.Intent.LeavesNode, i.Status.ModRev, s.joined = 2, 9, 7, 9, 8
		}, 0, []string{"again i00001: NodeLost"}},
		{"an old copy that came back after all is stopped", func(s *sim) {
			exclusive(s)
			s.add(online).Intent.Generation = 2
		}, 0, []string{"order i00001 by stop: NodeReturned"}},
		{"while most of the fleet is lost nothing is replaced, moved or stopped", func(s *sim) {
			s.group.Spec.Scaling.Min, s.outage = 2, Outage{Nodes: 9, Lost: 5}
			s.add(offline)
			s.add(manual, offline)
		}, outageLook, nil},
		{"a move that is held up by that is looked at again", func(s *sim) {
			exclusive(s)
			s.outage = Outage{Nodes: 9, Lost: 5}
			s.add(offline)
		}, outageLook, nil},
		{"so is a stop", func(s *sim) {
			s.group.Spec.OnNodeLoss, s.outage = fleet.NodeLossStop, Outage{Nodes: 9, Lost: 5}
			s.group.Spec.Scaling.Mode = fleet.ScalingManual
			s.add(manual, offline)
		}, outageLook, nil},
		{"few lost nodes are no mass, whatever their share", func(s *sim) {
			s.group.Spec.Scaling.Min, s.outage = 1, Outage{Nodes: 4, Lost: 4}
			s.add(offline)
		}, 0, []string{"create minimum for i00001: Replacement"}},
		{"a deleted node's instances have ended", func(s *sim) {
			s.deleted[lost], s.group.Spec.OnNodeLoss = true, fleet.NodeLossWait
			s.add(manual, offline)
			s.add(manual, in(lost, fleet.Online, fleet.ReasonReady, at(-time.Hour)))
		}, 0, []string{"bury i00001: NodeDeleted", "bury i00002: NodeDeleted"}},
		{"but an exclusive one only when it must be gone", func(s *sim) {
			exclusive(s)
			s.deleted[lost], s.lostSince = true, at(-ttl-time.Second)
			s.add(offline)
		}, time.Second, nil},
		{"and then it has", func(s *sim) {
			exclusive(s)
			s.deleted[lost], s.lostSince, s.group.Spec.OnNodeLoss = true, at(-ttl-2*time.Second), fleet.NodeLossWait
			s.add(offline)
		}, 0, []string{"bury i00001: NodeDeleted"}},
		{"a deleted node that lives ends nothing", func(s *sim) {
			s.deleted[alive] = true
			s.add(manual, online)
		}, 0, nil},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			s := newSim()
			tt.setup(s)
			s.expect(t, at(0), tt.wake, tt.want...)
		})
	}
}

func TestNodesThatReturn(t *testing.T) {
	running := func(since time.Duration) func(*fleet.Instance) {
		return func(i *fleet.Instance) {
			online(i)
			i.Status.StartedAt = at(since)
		}
	}
	starting := in(alive, fleet.Starting, fleet.ReasonProcessStarted, at(0))
	tests := []struct {
		rule          string
		policy        fleet.OnNodeReturn
		first, second func(*fleet.Instance)
		players       [2]int
		want          []string
	}{
		{"the original stays when it never stopped serving", "", running(-3 * time.Hour), running(-time.Hour), [2]int{}, []string{"stop i00002 by stop restores i00001: NodeReturned"}},
		{"it stays before its replacement is ready", "", running(-3 * time.Hour), starting, [2]int{}, []string{"stop i00002 by stop restores i00001: NodeReturned"}},
		{"it gives way when it was started anew", "", running(0), running(-time.Hour), [2]int{}, []string{"stop i00001 by stop: NodeReturned"}},
		{"started anew it still stays before a replacement that is not ready", "", running(0), starting, [2]int{}, []string{"stop i00002 by stop restores i00001: NodeReturned"}},
		{"the replacement stays where the group says so", fleet.KeepReplacement, running(-3 * time.Hour), running(-time.Hour), [2]int{}, []string{"stop i00001 by stop: NodeReturned"}},
		{"and is waited for", fleet.KeepReplacement, running(-3 * time.Hour), starting, [2]int{}, nil},
		{"whoever has players stays", "", running(-3 * time.Hour), running(-time.Hour), [2]int{0, 2}, []string{"stop i00001 by stop: NodeReturned"}},
		{"when both have players both stay", "", running(-3 * time.Hour), running(-time.Hour), [2]int{1, 2}, nil},
		{"nobody is stopped while neither serves", "", starting, starting, [2]int{}, nil},
	}
	for _, tt := range tests {
		for _, origin := range []fleet.Origin{fleet.OriginMinimum, fleet.OriginManual} {
			t.Run(tt.rule+", origin "+string(origin), func(t *testing.T) {
				s := newSim()
				s.group.Spec.OnNodeReturn, s.group.Spec.Scaling.Min, s.group.Spec.Scaling.Max = tt.policy, 1, 1
				s.group.Spec.StartupTimeoutSeconds, s.plans["plan"].StartupTimeoutSeconds = 0, 0
				first := s.add(createdAt(at(-4*time.Hour)), tt.first)
				second := s.add(createdAt(at(-2*time.Hour)), tt.second)
				for n, i := range []*fleet.Instance{first, second} {
					i.Intent.Origin = origin
					s.players[i.Intent.ID] = tt.players[n]
				}
				displace(first, second)
				s.expect(t, at(0), 0, tt.want...)
			})
		}
	}
}

func TestWhatIsNotMovedSaysWhy(t *testing.T) {
	s := newSim()
	exclusive(s)
	s.plans["plan"].OnNodeLoss = fleet.NodeLossWait
	s.add(in(lost, fleet.Online, fleet.ReasonReady, at(-time.Hour)))
	got := s.expect(t, at(0), 0, "lose i00001: NodeLost")
	if want := "restart it once its node is back"; len(got) != 1 || !strings.Contains(got[0].Message, want) {
		t.Errorf("it does not say %q: %+v", want, got)
	}
}

// succeed makes second the replacement of first, after a crash or a loss.
func succeed(first, second *fleet.Instance) {
	first.Intent.ReplacedBy, second.Intent.Replaces = second.Intent.ID, first.Intent.ID
	second.Intent.Lineage = first.Intent.Place()
}

func displace(first, second *fleet.Instance) {
	succeed(first, second)
	first.Intent.Displaced = true
}

func TestTheOriginalThatStaysIsHealedLikeAnyOther(t *testing.T) {
	s := newSim()
	first := s.add(manual, online, createdAt(at(-4*time.Hour)))
	first.Status.StartedAt = at(-3 * time.Hour)
	second := s.add(manual, online, createdAt(at(-2*time.Hour)))
	displace(first, second)
	s.apply(s.expect(t, at(0), 0, "stop i00002 by stop restores i00001: NodeReturned"), at(0))
	s.live(at(0))
	s.edit(s.instances[0], crashed(at(time.Second)))
	if got := s.instances[0].Crashes(); len(got) != 1 {
		t.Errorf("its crash does not count: %v", got)
	}
	s.expect(t, at(time.Minute), keep-time.Minute, "create manual for i00001: Replacement")
}

func TestNodesThatReturnLateFindTheirPlacesTakenByLaterOnes(t *testing.T) {
	serving := func(since time.Duration) func(*fleet.Instance) {
		return func(i *fleet.Instance) {
			manual(i)
			createdAt(at(since))(i)
			online(i)
			i.Status.StartedAt = at(since + time.Minute)
		}
	}
	h := -time.Hour
	tests := []struct {
		rule  string
		setup func(s *sim)
		want  []string
	}{
		{"whoever followed the replacement after a crash is one too many", func(s *sim) {
			a, b, c := s.add(serving(4*h)), s.add(serving(3*h)), s.add(serving(2*h))
			displace(a, b)
			succeed(b, c)
			crashed(at(-30 * time.Minute))(b)
		}, []string{"stop i00003 by stop restores i00001: NodeReturned"}},
		{"also when nothing is left of the one in between", func(s *sim) {
			a, b, c := s.add(serving(4*h)), s.add(serving(3*h)), s.add(serving(2*h))
			displace(a, b)
			succeed(b, c)
			s.instances = []*fleet.Instance{a, c}
		}, []string{"stop i00003 by stop restores i00001: NodeReturned"}},
		{"also when the one in between is lost", func(s *sim) {
			a, b, c := s.add(serving(4*h)), s.add(serving(3*h)), s.add(serving(2*h))
			displace(a, b)
			displace(b, c)
			in(lost, fleet.Offline, fleet.ReasonNodeLost, at(-time.Hour))(b)
		}, []string{"stop i00003 by stop restores i00001: NodeReturned"}},
		{"of three that are all back two go", func(s *sim) {
			a, b, c := s.add(serving(4*h)), s.add(serving(3*h)), s.add(serving(2*h))
			displace(a, b)
			displace(b, c)
		}, []string{"stop i00002 by stop: NodeReturned", "stop i00003 by stop restores i00001: NodeReturned"}},
		{"who was started again by hand is nobody's replacement", func(s *sim) {
			a, b := s.add(serving(4*h)), s.add(serving(3*h))
			displace(a, b)
			b.Intent.Lineage = ""
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			s := newSim()
			s.group.Spec.StartupTimeoutSeconds, s.plans["plan"].StartupTimeoutSeconds = 0, 0
			tt.setup(s)
			actions, _ := Group(s.input(), at(0))
			if got := short(actions); got != strings.Join(tt.want, "\n") {
				t.Errorf("actions:\n%s\nwant:\n%s", got, strings.Join(tt.want, "\n"))
			}
		})
	}
}
