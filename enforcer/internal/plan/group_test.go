package plan

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// keep is how long the records of finished instances stay.
const keep = time.Hour

func TestGroup(t *testing.T) {
	const m = time.Minute
	restarting := func(i *fleet.Instance) { wantsStop(false)(i); i.Intent.RestartPending = true }
	frozen := func(i *fleet.Instance) { i.Intent.Frozen = true }
	off := func(i *fleet.Instance) {
		in(alive, fleet.Stopped, fleet.ReasonStopRequested, at(-m))(i)
		wantsStop(false)(i)
	}
	tests := []struct {
		rule  string
		setup func(*sim)
		wake  time.Duration
		want  []string
	}{
		{"a group at its minimum needs nothing", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(online)
		}, 0, nil},
		{"who waits is made anew when the group asks something else of nodes", func(s *sim) {
			s.group.Spec.Scaling.Min, s.group.Revision, s.group.Spec.Resources.MemoryMiB = 2, 2, 5
			s.add()
			s.add(online)
		}, 0, []string{"again i00001: BelowMinimum"}},
		{"who waits stays as it is when the group changes otherwise", func(s *sim) {
			s.group.Spec.Scaling.Min, s.group.Revision, s.group.Spec.Command = 1, 2, "other"
			s.add()
		}, 0, nil},
		{"who was made from the group as it is waits on", func(s *sim) {
			s.group.Spec.Scaling.Min, s.group.Spec.Resources.MemoryMiB = 1, 5
			s.add()
		}, 0, nil},
		{"who waits is made anew when what the group inherits asks something else", func(s *sim) {
			s.group.Spec.Scaling.Min, s.group.Spec.Parent = 1, "above"
			s.group.Spec.Where.Nodes = []fleet.NodeID{"other"} // inherited
			s.add()
		}, 0, []string{"again i00001: BelowMinimum"}},
		{"who was made of what the group inherits waits on when the group changes otherwise", func(s *sim) {
			s.group.Spec.Scaling.Min, s.group.Spec.Parent, s.group.Revision = 1, "above", 2
			s.group.Spec.Where.Nodes = []fleet.NodeID{"other"} // inherited
			s.plans["plan"].Where.Nodes = []fleet.NodeID{"other"}
			s.add()
		}, 0, nil},
		{"a frozen instance that was stopped is neither started again nor replaced", func(s *sim) {
			s.group.Spec.Scaling.Min = 2
			s.add(online)
			s.add(off, frozen)
		}, 0, nil},
		{"nor is one that crashed", func(s *sim) {
			s.group.Spec.Scaling.Min = 2
			s.add(online)
			s.add(manual, crashed(at(-time.Minute)), frozen)
		}, 0, nil},
		{"nor is one of a static group", func(s *sim) {
			s.group.Spec.Scaling.Min, s.group.Spec.Static.Enabled = 1, true
			s.add(off, frozen)
		}, 0, nil},
		{"its records are kept", func(s *sim) {
			s.add(off, frozen)
			s.add(off)
			s.limits.KeepFor = time.Second
		}, 0, []string{"delete_instance i00002: Retention"}},
		{"a frozen instance is not trimmed", func(s *sim) {
			s.group.Spec.Scaling.Min, s.group.Spec.Scaling.Max = 1, 1
			s.add(online)
			s.add(online, frozen)
		}, 0, []string{"stop i00001 by stop: ScaledDown"}},
		{"it is restarted when somebody asks for that", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(off, frozen, restarting)
		}, 0, []string{"again i00001: Restart"}},
		{"a deficit is filled", func(s *sim) {
			s.group.Spec.Scaling.Min = 2
		}, 0, []string{"create minimum: BelowMinimum", "create minimum: BelowMinimum"}},
		{"manual instances count towards the minimum", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(manual, online)
		}, 0, nil},
		{"the minimum never goes beyond the maximum", func(s *sim) {
			s.group.Spec.Scaling.Min, s.group.Spec.Scaling.Max = 5, 1
		}, 0, []string{"create minimum: BelowMinimum"}},
		{"excess is stopped, the youngest first", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(online)
			s.add(online)
			s.add()
		}, 0, []string{"stop i00003: ScaledDown", "stop i00002 by stop: ScaledDown"}},
		{"excess with players waits, an older empty one goes", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(online)
			s.players[s.add(online).Intent.ID] = 3
		}, 0, []string{"stop i00001 by stop: ScaledDown"}},
		{"excess that all has players waits", func(s *sim) {
			s.players[s.add(online).Intent.ID] = 1
		}, 0, nil},
		{"manual instances are not trimmed by the minimum", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(online)
			s.add(manual, online)
		}, 0, nil},
		{"an explicit scale makes older manual ones trimmable", func(s *sim) {
			s.group.ScaledAt = at(-m)
			s.add(manual, online)
			s.add(manual, online, createdAt(at(0)))
		}, 0, []string{"stop i00001 by stop: ScaledDown"}},
		{"surplus over the maximum is stopped whoever started it", func(s *sim) {
			s.group.Spec.Scaling.Max = 1
			s.add(manual, online)
			s.players[s.add(manual, online).Intent.ID] = 9
		}, 0, []string{"stop i00002 by stop: AboveMaximum"}},
		{"maximum 0 is no maximum", func(s *sim) {
			s.group.Spec.Scaling.Max = 0
			s.add(manual, online)
		}, 0, nil},
		{"MANUAL scaling starts, heals and trims nothing", func(s *sim) {
			s.group.Spec.Scaling.Mode, s.group.Spec.Scaling.Min = fleet.ScalingManual, 2
			s.add(manual, crashed(at(0)))
		}, keep, nil},
		{"MANUAL scaling keeps the maximum", func(s *sim) {
			s.group.Spec.Scaling.Mode, s.group.Spec.Scaling.Max = fleet.ScalingManual, 1
			s.add(manual, online)
			s.add(manual, online)
		}, 0, []string{"stop i00002 by stop: AboveMaximum"}},
		{"maintenance starts nothing and keeps what waits for a successor", func(s *sim) {
			s.group.Spec.Maintenance.On, s.group.Spec.Scaling.Min = true, 2
			s.add(manual, createdAt(at(-3*time.Hour)), crashed(at(-2*time.Hour)))
		}, 0, nil},

		{"a group whose dependency does not run starts nothing", func(s *sim) {
			s.unmet, s.group.Spec.Scaling.Min = true, 2
			s.add(crashed(at(0)))
		}, keep, nil},
		{"a group whose dependency does not run keeps its maximum", func(s *sim) {
			s.unmet, s.group.Spec.Scaling.Max = true, 1
			s.add(manual, online)
			s.add(manual, online)
		}, 0, []string{"stop i00002 by stop: AboveMaximum"}},
		{"maintenance of all groups starts nothing", func(s *sim) {
			s.maintenance, s.group.Spec.Scaling.Min = true, 2
			s.add(crashed(at(0)))
		}, keep, nil},

		{"a crashed minimum instance is replaced by name", func(s *sim) {
			s.group.Spec.Scaling.Min = 2
			s.add(crashed(at(0)))
			s.add(online)
		}, 0, []string{"create minimum for i00001: Replacement"}},
		{"a crashed minimum instance above the minimum is not replaced", func(s *sim) {
			s.add(crashed(at(0)))
		}, keep, nil},
		{"a crashed manual instance is replaced", func(s *sim) {
			s.add(manual, crashed(at(0)))
		}, 0, []string{"create manual for i00001: Replacement"}},
		{"nothing is replaced twice while the successor is known", func(s *sim) {
			s.add(manual, crashed(at(0)))
			s.add(manual, online)
			s.instances[0].Intent.ReplacedBy = "i00002"
		}, keep, nil},
		{"nothing is replaced twice when the successor is forgotten", func(s *sim) {
			s.add(manual, crashed(at(0)), func(i *fleet.Instance) { i.Intent.ReplacedBy = "gone00" })
		}, keep, nil},
		{"onCrash stop leaves a crashed manual instance", func(s *sim) {
			s.group.Spec.OnCrash = fleet.CrashStop
			s.add(manual, crashed(at(0)))
		}, keep, nil},
		{"onCrash stop: what a reboot ended comes back", func(s *sim) {
			s.group.Spec.OnCrash = fleet.CrashStop
			s.add(manual, in(alive, fleet.Stopped, fleet.ReasonNodeRebooted, at(0)))
		}, 0, []string{"create manual for i00001: Replacement"}},
		{"onCrash stop: what had to end with its node's session comes back", func(s *sim) {
			s.group.Spec.Static.Enabled, s.group.Spec.OnCrash = true, fleet.CrashStop
			s.add(manual, in(alive, fleet.Stopped, fleet.ReasonSessionExpiring, at(0)))
		}, 0, []string{"again i00001: Replacement"}},
		{"onCrash stop: what had no guard comes back", func(s *sim) {
			s.group.Spec.Static.Enabled, s.group.Spec.OnCrash = true, fleet.CrashStop
			s.add(manual, in(alive, fleet.Failed, fleet.ReasonGuardFailed, at(0)))
		}, 0, []string{"again i00001: Replacement"}},
		{"the minimum holds with onCrash stop", func(s *sim) {
			s.group.Spec.OnCrash, s.group.Spec.Scaling.Min = fleet.CrashStop, 1
			s.add(crashed(at(0)))
		}, 0, []string{"create minimum for i00001: Replacement"}},
		{"onCrash restart: what the agent gave up is replaced", func(s *sim) {
			s.group.Spec.OnCrash = fleet.CrashRestart
			s.add(manual, in(alive, fleet.Failed, fleet.ReasonStartFailed, at(0)))
		}, 0, []string{"create manual for i00001: Replacement"}},
		{"an exit nobody asked for is replaced", func(s *sim) {
			s.add(manual, in(alive, fleet.Stopped, fleet.ReasonExitedByItself, at(0)))
		}, 0, []string{"create manual for i00001: Replacement"}},
		{"a replacement needs room below the maximum", func(s *sim) {
			s.group.Spec.Scaling.Max = 1
			s.add(manual, crashed(at(0)))
			s.add(manual, online)
		}, 0, nil},
		{"a stop below the minimum is followed by a new one at once", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(online, wantsStop(false))
		}, 0, []string{"create minimum: BelowMinimum", "order i00001 by stop: StopRequested"}},
		{"what ended with its agent waits for the agent to be gone", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(in(alive, fleet.Stopped, fleet.ReasonAgentShutdown, at(0)))
		}, m, nil},
		{"but not for ever", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(in(alive, fleet.Stopped, fleet.ReasonAgentShutdown, at(-m)))
		}, 0, []string{"create minimum for i00001: Replacement"}},
		{"what ended with its agent is replaced when the agent is gone", func(s *sim) {
			s.add(manual, in(lost, fleet.Stopped, fleet.ReasonAgentShutdown, at(0)))
		}, 0, []string{"create manual for i00001: Replacement"}},
		{"what ended with its agent is replaced when a new agent came", func(s *sim) {
			s.sessions[alive].CreateRev = 11
			s.add(manual, in(alive, fleet.Stopped, fleet.ReasonAgentShutdown, at(0)))
		}, 0, []string{"create manual for i00001: Replacement"}},

		{"static: the same instance comes again", func(s *sim) {
			s.group.Spec.Static.Enabled, s.group.Spec.Scaling.Min = true, 1
			s.add(crashed(at(0)))
		}, 0, []string{"again i00001: Replacement"}},
		{"static: a manual one comes again", func(s *sim) {
			s.group.Spec.Static.Enabled = true
			s.add(manual, crashed(at(0)))
		}, 0, []string{"again i00001: Replacement"}},
		{"static: onCrash stop leaves a manual one", func(s *sim) {
			s.group.Spec.Static.Enabled, s.group.Spec.OnCrash = true, fleet.CrashStop
			s.add(manual, crashed(at(0)))
		}, 0, nil},
		{"static: for one that is stopping no other is made", func(s *sim) {
			s.group.Spec.Static.Enabled, s.group.Spec.Scaling.Min = true, 2
			s.add(online, wantsStop(false))
			s.add(online)
		}, 0, []string{"order i00001 by stop: StopRequested"}},
		{"static: a crashed one does not wait for one that is stopping", func(s *sim) {
			s.group.Spec.Static.Enabled, s.group.Spec.Scaling.Min = true, 1
			s.add(crashed(at(0)))
			s.add(manual, online, wantsStop(false))
		}, 0, []string{"again i00001: Replacement", "order i00002 by stop: StopRequested"}},
		{"static: but for those that were never there", func(s *sim) {
			s.group.Spec.Static.Enabled, s.group.Spec.Scaling.Min = true, 2
			s.add(online, wantsStop(false))
		}, 0, []string{"create minimum: BelowMinimum", "order i00001 by stop: StopRequested"}},
		{"static: crashed before stopped, old before new", func(s *sim) {
			s.group.Spec.Static.Enabled, s.group.Spec.Scaling.Min = true, 3
			s.add(in(alive, fleet.Stopped, fleet.ReasonStopRequested, at(-m)), wantsStop(false))
			s.add(crashed(at(0)))
		}, 0, []string{"again i00002: Replacement", "again i00001: BelowMinimum", "create minimum: BelowMinimum"}},
		{"static: no more than there are names", func(s *sim) {
			s.group.Spec.Static = fleet.Static{Enabled: true, InstanceNames: []string{"a"}}
			s.group.Spec.Scaling.Min = 3
		}, 0, []string{"create minimum: BelowMinimum"}},
		{"static: no other instance in place of those that have all names", func(s *sim) {
			s.group.Spec.Static = fleet.Static{Enabled: true, InstanceNames: []string{"a", "b"}}
			s.group.Spec.Scaling.Min = 2
			s.add(online, called("b"))
			s.add(manual, called("a"), in(alive, fleet.Stopping, fleet.ReasonStopRequested, at(0)), wantsStop(false), ordered(fleet.OrderStop, at(0)))
		}, 70 * time.Second, nil},
		{"static: stopped ones in the order of the names", func(s *sim) {
			s.group.Spec.Static = fleet.Static{Enabled: true, InstanceNames: []string{"a", "b"}}
			s.group.Spec.Scaling.Min = 1
			s.add(called("b"), in(alive, fleet.Stopped, fleet.ReasonStopRequested, at(-m)), wantsStop(false))
			s.add(called("a"), in(alive, fleet.Stopped, fleet.ReasonStopRequested, at(-m)), wantsStop(false))
		}, 0, []string{"again i00002: BelowMinimum"}},
		{"static: one whose name was removed is stopped, and the next name takes its place", func(s *sim) {
			s.group.Spec.Static = fleet.Static{Enabled: true, InstanceNames: []string{"a", "b"}}
			s.group.Spec.Scaling.Min = 2
			s.add(online, called("gone"))
			s.add(online, called("a"))
		}, 0, []string{"stop i00001 by stop: ScaledDown", "create minimum: BelowMinimum"}},
		{"static: one whose name was removed is not started again", func(s *sim) {
			s.group.Spec.Static = fleet.Static{Enabled: true, InstanceNames: []string{"a"}}
			s.group.Spec.Scaling.Min = 1
			s.add(crashed(at(0)), called("gone"))
			s.add(online, called("a"))
		}, 0, nil},
		{"static: one that was started by hand keeps running without its name", func(s *sim) {
			s.group.Spec.Static = fleet.Static{Enabled: true, InstanceNames: []string{"a"}}
			s.add(manual, online, called("gone"))
		}, 0, nil},
		{"static: one from before the names has the place of its number", func(s *sim) {
			s.group.Spec.Static = fleet.Static{Enabled: true, InstanceNames: []string{"a", "b"}}
			s.group.Spec.Scaling.Min = 2
			s.add(crashed(at(0)))
		}, 0, []string{"again i00001: Replacement", "create minimum: BelowMinimum"}},
		{"static: records stay", func(s *sim) {
			s.group.Spec.Static.Enabled = true
			s.add(createdAt(at(-3*time.Hour)), in(alive, fleet.Stopped, fleet.ReasonStopRequested, at(-2*time.Hour)), wantsStop(false))
		}, 0, nil},

		{"a restart waits for the end, ordered like a stop", func(s *sim) {
			s.add(manual, online, restarting)
		}, 0, []string{"order i00001 by stop: StopRequested"}},
		{"a restart that has ended comes again, also in maintenance", func(s *sim) {
			s.group.Spec.Maintenance.On = true
			s.add(manual, in(alive, fleet.Stopped, fleet.ReasonStopRequested, at(0)), restarting)
		}, 0, []string{"again i00001: Restart"}},
		{"a restarting instance counts towards the minimum", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(online, restarting, ordered(fleet.OrderStop, at(0)))
		}, 70 * time.Second, nil},

		{"a deleted group stops all and forgets what has finished", func(s *sim) {
			s.group.Deleting, s.group.Spec.Scaling.Min = true, 2
			s.add(online)
			s.add()
			s.add(crashed(at(0)))
			s.add(online, restarting)
		}, 0, []string{
			"stop i00001 by stop: GroupDeleted", "stop i00002: GroupDeleted",
			"stop i00004 by stop: GroupDeleted", "delete_instance i00003: GroupDeleted",
		}},
		{"a deleted group stops and forgets frozen ones too", func(s *sim) {
			s.group.Deleting = true
			s.add(online, frozen)
			s.add(off, frozen)
		}, 0, []string{"stop i00001 by stop: GroupDeleted", "delete_instance i00002: GroupDeleted"}},
		{"a deleted group without instances goes", func(s *sim) {
			s.group.Deleting = true
		}, 0, []string{"delete_group: GroupDeleted"}},
		{"a deleted group waits for a lost node", func(s *sim) {
			s.group.Deleting = true
			s.add(in(lost, fleet.Offline, fleet.ReasonNodeLost, at(0)), wantsStop(false), ordered(fleet.OrderStop, at(0)))
		}, 0, nil},
		{"a missing group starts and stops nothing but carries stops out", func(s *sim) {
			s.group = nil
			s.add(online)
			s.add(online, wantsStop(false))
			s.add(createdAt(at(-3*time.Hour)), crashed(at(-2*time.Hour)))
		}, 0, []string{"order i00002 by stop: StopRequested", "delete_instance i00003: Retention"}},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			s := newSim()
			tt.setup(s)
			s.expect(t, at(0), tt.wake, tt.want...)
		})
	}
}

func TestOrders(t *testing.T) {
	const m = time.Minute
	tests := []struct {
		rule  string
		setup func(*sim)
		wake  time.Duration
		want  string
	}{
		{"force orders a kill", func(s *sim) {
			s.add(manual, online, wantsStop(true))
		}, 0, "order i00001 by kill: StopRequested"},
		{"a stop is upgraded to a kill", func(s *sim) {
			s.add(manual, online, wantsStop(true), ordered(fleet.OrderStop, at(0)))
		}, 70 * time.Second, "order i00001 by kill: StopRequested"},
		{"a kill is not weakened", func(s *sim) {
			s.add(manual, online, wantsStop(false), ordered(fleet.OrderKill, at(0)))
		}, 0, ""},
		{"an order of an older generation counts for nothing", func(s *sim) {
			i := s.add(manual, online, wantsStop(false), ordered(fleet.OrderStop, at(0)))
			i.Order.Generation = 0
		}, 0, "order i00001 by stop: StopRequested"},
		{"an order on another node counts for nothing", func(s *sim) {
			i := s.add(manual, online, wantsStop(false), ordered(fleet.OrderStop, at(0)))
			i.Order.Node = lost
		}, 0, "order i00001 by stop: StopRequested"},
		{"an instance on a lost node is ordered all the same", func(s *sim) {
			s.add(manual, in(lost, fleet.Offline, fleet.ReasonNodeLost, at(0)), wantsStop(false))
		}, 0, "order i00001 by stop: StopRequested"},
		{"what has no placement needs no order", func(s *sim) {
			s.add(manual, wantsStop(false))
		}, 59 * time.Minute, ""},
		{"a node that runs it without a placement is ordered to stop it", func(s *sim) {
			s.add(manual, online, wantsStop(false)).Placement = nil
		}, 0, "order i00001 by stop: StopRequested"},
		{"so is one that runs a later generation than is placed elsewhere", func(s *sim) {
			i := s.add(manual, online, wantsStop(false), ordered(fleet.OrderStop, at(0)))
			i.Placement.Node, i.Status.Generation = lost, 2
		}, 0, "order i00001 by stop: StopRequested"},
		{"but only when somebody wants that", func(s *sim) {
			s.add(manual, in(alive, fleet.Starting, fleet.ReasonProcessStarted, at(-time.Hour))).Placement = nil
		}, 0, ""},

		{"STARTING within its bound waits", func(s *sim) {
			s.add(manual, in(alive, fleet.Starting, fleet.ReasonProcessStarted, at(-2*m)))
		}, 15 * time.Second, ""},
		{"STARTING beyond its bound is killed", func(s *sim) {
			s.add(manual, in(alive, fleet.Starting, fleet.ReasonProcessStarted, at(-3*m)))
		}, 0, "order i00001 by kill: DeadlinePassed"},
		{"STARTING may wait for a port for longer than its bound", func(s *sim) {
			s.plans["plan"].StartupTimeoutSeconds = 10
			s.add(manual, in(alive, fleet.Starting, fleet.ReasonPortReleasing, at(-m)))
		}, 30 * time.Second, ""},
		{"but not for ever", func(s *sim) {
			s.plans["plan"].StartupTimeoutSeconds = 10
			s.add(manual, in(alive, fleet.Starting, fleet.ReasonPortReleasing, at(-fleet.PortPatience-time.Minute)))
		}, 0, "order i00001 by kill: DeadlinePassed"},
		{"STARTING has no bound when the plan has none", func(s *sim) {
			s.plans["plan"].StartupTimeoutSeconds = 0
			s.add(manual, in(alive, fleet.Starting, fleet.ReasonProcessStarted, at(-time.Hour)))
		}, 0, ""},
		{"a lost node is given no deadline", func(s *sim) {
			s.group.Spec.OnNodeLoss = fleet.NodeLossWait
			s.add(manual, in(lost, fleet.Offline, fleet.ReasonNodeLost, at(-time.Hour)))
		}, 0, ""},
		{"a deadline starts anew with a new agent", func(s *sim) {
			s.sessions[alive].StartedAt = at(-m)
			s.add(manual, in(alive, fleet.Starting, fleet.ReasonProcessStarted, at(-time.Hour)))
		}, 75 * time.Second, ""},
		{"a placement nobody answers is killed after ten minutes", func(s *sim) {
			s.add(manual, placedOn(alive, at(-10*m)))
		}, 0, "order i00001 by kill: DeadlinePassed"},
		{"PREPARING within ten minutes waits", func(s *sim) {
			s.add(manual, in(alive, fleet.Preparing, fleet.ReasonPreparing, at(-9*m)))
		}, m, ""},
		{"STOPPING beyond grace, kill and slack is killed", func(s *sim) {
			s.add(manual, in(alive, fleet.Stopping, fleet.ReasonStopRequested, at(-70*time.Second)), wantsStop(false), ordered(fleet.OrderStop, at(-80*time.Second)))
		}, 0, "order i00001 by kill: DeadlinePassed"},
		{"a stop the agent never took up is killed", func(s *sim) {
			s.add(manual, online, wantsStop(false), ordered(fleet.OrderStop, at(-70*time.Second)))
		}, 0, "order i00001 by kill: DeadlinePassed"},
		{"ONLINE has no deadline", func(s *sim) {
			s.add(manual, online)
		}, 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			s := newSim()
			tt.setup(s)
			var want []string
			if tt.want != "" {
				want = append(want, tt.want)
			}
			s.expect(t, at(0), tt.wake, want...)
		})
	}
}
