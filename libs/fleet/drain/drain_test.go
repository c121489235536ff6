package drain_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/drain"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// on returns an ONLINE instance on a node.
func on(id fleet.InstanceID, node fleet.NodeID) *fleet.Instance {
	return &fleet.Instance{
		Intent:    fleet.Intent{ID: id, Name: string(id), Group: "g", Generation: 1, Desired: fleet.DesiredRunning},
		Placement: &fleet.Placement{Instance: id, Node: node, Generation: 1},
		Status:    &fleet.Status{Instance: id, Node: node, Generation: 1, State: fleet.Online},
	}
}

func TestStepsAreInTheOrderInWhichInstancesMayEnd(t *testing.T) {
	spec := fleet.DefaultSpec()
	ending, frozen := on("ending", "n1"), on("frozen", "n1")
	ending.Intent.Desired, frozen.Intent.Frozen = fleet.DesiredStopped, true
	g := drain.Group{
		Spec: &spec, Target: 3, Instances: []*fleet.Instance{frozen, on("full", "n1"), on("empty", "n1"), on("few", "n1"), ending, on("away", "n2")},
		Draining: func(n fleet.NodeID) *fleet.NodeDrain {
			if n != "n1" {
				return nil
			}
			return &fleet.NodeDrain{At: noon, TimeoutSeconds: 60}
		},
		Players: func(i *fleet.Instance) int { return map[fleet.InstanceID]int{"full": 9, "few": 2}[i.Intent.ID] },
	}
	steps, wake := g.Of(noon)
	var got []string
	for _, s := range steps {
		got = append(got, string(s.Instance.Intent.ID)+" "+string(s.Verb))
		if s.Message == "" || s.Outlook() == "" || s.Node != "n1" {
			t.Errorf("step %+v", s)
		}
	}
	// Two of the three that are needed serve already: the one that is away, and the frozen one.
	if want := []string{"ending ENDING", "empty RETIRE", "few RETIRE", "full WAIT", "frozen BLOCK"}; !slices.Equal(got, want) {
		t.Errorf("steps %v, want %v", got, want)
	}
	if !wake.Equal(noon.Add(30 * time.Second)) {
		t.Errorf("wakes %v later", wake.Sub(noon))
	}
	steps, _ = g.Of(noon.Add(time.Minute))
	for _, s := range steps {
		if s.Instance.Intent.ID == "full" && (s.Verb != drain.Stop || !strings.Contains(s.Outlook(), "9 players")) {
			t.Errorf("at the timeout: %s, %s", s.Verb, s.Outlook())
		}
	}
}

func TestOnlyStaticInstancesThatADrainStoppedStartAgain(t *testing.T) {
	static, dynamic := fleet.DefaultSpec(), fleet.DefaultSpec()
	static.Static.Enabled = true
	stopped := func(why fleet.Reason) *fleet.Instance {
		i := on("i", "n1")
		i.Intent.Desired, i.Intent.Stop = fleet.DesiredStopped, &fleet.StopRequest{Reason: why}
		return i
	}
	if !drain.Down(&static, stopped(fleet.ReasonNodeDrained)) {
		t.Error("it does not start again")
	}
	if drain.Down(&dynamic, stopped(fleet.ReasonNodeDrained)) || drain.Down(&static, stopped(fleet.ReasonStopRequested)) || drain.Down(&static, on("i", "n1")) {
		t.Error("another one starts again")
	}
}
