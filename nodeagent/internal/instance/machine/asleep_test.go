package machine_test

import (
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/sleep"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
)

// asleep is a machine that has fallen asleep.
func asleep(t *testing.T) *script {
	s := running(t, nil).on(order(1, fleet.OrderSleep)).did(machine.Stop{}).is(machine.Stopping, fleet.Stopping, fleet.ReasonStopRequested)
	return s.on(exited(1, 0)).did().is(machine.Asleep, fleet.Sleeping, fleet.ReasonStopRequested)
}

func TestASleepingInstanceKeepsItsDirectory(t *testing.T) {
	s := asleep(t).on(machine.Recovered{}).did().on(machine.Expiring{}).did().on(machine.Shutdown{}).did()
	s.is(machine.Asleep, fleet.Sleeping, fleet.ReasonStopRequested)
	s.on(machine.Recovered{}, placed(2)).did(machine.Prepare{Run: 2}).is(machine.Preparing, fleet.Preparing, fleet.ReasonPreparing)
	if !s.state.Slept || s.state.Plan.Group != "g" {
		t.Errorf("the next generation does not keep the directory: %+v", s.state)
	}
	s.on(prepared(2, nil), started(2), order(2, fleet.OrderStop), exited(2, 0)).did(machine.Clear{}).is(machine.Ended, fleet.Stopped, fleet.ReasonStopRequested)
}

func TestANewPlanBuildsTheDirectoryOfASleepingInstance(t *testing.T) {
	next := placed(2)
	next.Placement.Plan = "another"
	if s := asleep(t).on(next); s.state.Slept {
		t.Error("the directory of another plan is kept")
	}
}

func TestTheFirstCallIsKept(t *testing.T) {
	s := asleep(t).on(machine.Called{Call: sleep.Call{Join: true, Player: "ann"}}, machine.Called{Call: sleep.Call{Player: "bob"}})
	if c := s.state.Status.Wake; c == nil || c.Player != "ann" {
		t.Errorf("the call is %+v", c)
	}
	if s = running(t, nil).on(machine.Called{}); s.state.Status.Wake != nil {
		t.Error("an instance that is awake was called")
	}
}

func TestASleepingInstanceEnds(t *testing.T) {
	asleep(t).on(order(1, fleet.OrderStop)).did(machine.Clear{}).is(machine.Ended, fleet.Stopped, fleet.ReasonStopRequested)
	asleep(t).on(machine.StoppedLocally{By: "root"}).did(machine.Clear{}).is(machine.Ended, fleet.Stopped, fleet.ReasonStoppedLocally)
	asleep(t).on(machine.Removed{}).did(machine.Clear{}, machine.Forget{})
	asleep(t).on(machine.Superseded{Generation: 1}).did(machine.Clear{}).is(machine.Ended, fleet.Stopped, fleet.ReasonOrphan)
}

func TestAStopIsStrongerThanSleep(t *testing.T) {
	s := running(t, nil).on(order(1, fleet.OrderSleep), order(1, fleet.OrderStop), exited(1, 0))
	s.did(machine.Clear{}).is(machine.Ended, fleet.Stopped, fleet.ReasonStopRequested)
}

func TestACrashBeforeTheOrderIsNoSleep(t *testing.T) {
	running(t, func(p *fleet.Plan) { p.OnCrash = fleet.CrashStop }).on(exited(1, 1), order(1, fleet.OrderSleep)).is(machine.Ended, fleet.Crashed, fleet.ReasonExited)
}

func TestARestartOfTheHostBuildsTheDirectoryAgain(t *testing.T) {
	for what, events := range map[string][]machine.Event{
		"while it starts": {prepared(2, restarting)},
		"while it runs":   {prepared(2, restarting), started(2)},
	} {
		s := asleep(t).on(placed(2)).on(events...).on(machine.Recovered{})
		if !s.state.Slept {
			t.Errorf("%s: a restart of the agent builds the directory again", what)
		}
		s.on(machine.Lost{Run: 2, Rebooted: true}).did(machine.Prepare{Run: 3})
		if s.state.Slept {
			t.Errorf("%s: a directory that a power cut may have damaged is kept", what)
		}
	}
}
