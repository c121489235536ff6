package nodeagent_test

import (
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent"
)

func taking(c *nodeagent.Config) { c.StopInstancesOnExit = true }

func TestPlacedInstanceRunsUntilOrderedToStop(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := basic(`echo ready; read line; echo "got $line"; echo data >file; exit 0`)
	plan.Stop.Command = "stop"
	plan.Layers = []fleet.PlanLayer{s.library.add("base", map[string]string{"server.properties": "port=%PORT%\n", "raw": "%PORT%"})}
	plan.FileModifications = []string{"*.properties"}
	port := freePort(t)
	s.place("aaaaaa", 1, plan, port)
	st := s.awaitState("aaaaaa", 1, fleet.Online)
	if st.PID == 0 || st.HostAddress != "play.example.org" || st.TokenHash == "" || st.Node != node {
		t.Errorf("status %+v", st)
	}
	s.order("aaaaaa", 1, fleet.OrderStop)
	st = s.awaitState("aaaaaa", 1, fleet.Stopped)
	if st.Reason != fleet.ReasonStopRequested || st.Exit == nil || !st.Exit.Known || st.Exit.Code != 0 || st.PID != 0 {
		t.Errorf("status %+v", st)
	}
	s.remove(keys.Placement(node, "aaaaaa"))
}

func TestUnrequestedShutdownKeepsInstancesRunning(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	s.place("aaaaaa", 1, basic("sleep 1000"), 0)
	pid := s.awaitState("aaaaaa", 1, fleet.Online).PID
	if err := s.agent.Stop(func() bool { return false })(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.stop()
	if !alive(pid) {
		t.Fatal("stopped although nobody asked for it")
	}
	s.start(taking)
	s.awaitState("aaaaaa", 1, fleet.Online)
	if err := s.agent.Stop(func() bool { return true })(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.stop()
	if alive(pid) {
		t.Error("it runs on although its end was asked for")
	}
}
