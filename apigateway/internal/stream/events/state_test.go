package events

import (
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestEveryStateHasAName(t *testing.T) {
	want := map[fleet.State]string{
		fleet.Unplaced: "SCHEDULED", fleet.Preparing: "PREPARING", fleet.Starting: "STARTING", fleet.Online: "RUNNING", fleet.Stopping: "STOPPING",
		fleet.Stopped: "STOPPED", fleet.Sleeping: "STOPPED", fleet.Crashed: "CRASHED", fleet.Failed: "CRASHED", fleet.Offline: "CRASHED",
	}
	for _, s := range fleet.States {
		i := &fleet.Instance{Intent: fleet.Intent{Desired: fleet.DesiredRunning}}
		if s != fleet.Unplaced {
			i.Status = &fleet.Status{State: s}
		}
		if got := StateOf(i); got != want[s] {
			t.Errorf("%s is shown as %s", s, got)
		}
		i.Intent.Retire = &fleet.Retirement{}
		if got := StateOf(i); (got == "DRAINING") != (s == fleet.Online) {
			t.Errorf("%s is shown as %s while it retires", s, got)
		}
	}
}
