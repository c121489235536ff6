package events

import (
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestEveryStateHasAName(t *testing.T) {
	want := map[fleet.State]string{
		fleet.Unplaced: "SCHEDULED", fleet.Preparing: "PREPARING", fleet.Starting: "STARTING", fleet.Online: "RUNNING", fleet.Stopping: "STOPPING",
		fleet.Stopped: "STOPPED", fleet.Crashed: "CRASHED", fleet.Failed: "CRASHED", fleet.Offline: "CRASHED",
	}
	for _, s := range fleet.States {
		if got := StateOf(s); got != want[s] {
			t.Errorf("%s is shown as %s", s, got)
		}
	}
}
