package apigateway

import (
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestAWarmInstanceTakesNoPlayers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", map[string]any{"minInstances": 1, "maxInstances": 5, "maxPlayers": 10, "warmPoolMinPrepared": 1})
	id := s.start("lobby")
	s.hold(id, "node-1", fleet.Resources{MemoryMiB: 16})
	s.status(id, "node-1", fleet.Status{State: fleet.Online, Reason: fleet.ReasonReady})
	warm := func(on bool) {
		t.Helper()
		i, _ := s.view.Snapshot().Instances.Get(id)
		next := i.Intent
		next.Warm = on
		s.commit(store.Replace(keys.Intent(id), next, next.ModRev))
	}
	warm(true)
	s.do("GET", "/api/v1/instances/lobby-1", nil).want(200).is("warm", true).is("state", "RUNNING")
	s.do("GET", "/api/v1/groups/lobby", nil).want(200).is("runningInstances", 0).is("scaling.missing", 1).is("scaling.slots", 0)
	s.do("POST", "/api/v1/allocations", `{"selectors":[{"group":"lobby"}],"slots":1}`).want(409)
	warm(false)
	s.do("GET", "/api/v1/instances/lobby-1", nil).want(200).is("warm", false)
	s.do("GET", "/api/v1/groups/lobby", nil).want(200).is("runningInstances", 1).is("scaling.missing", 0).is("scaling.slots", 10)
	for _, body := range []string{`{"scalingMode":"MANUAL"}`, `{"static":true}`} {
		s.do("PATCH", "/api/v1/groups/lobby", body).want(422).naming("warmPoolMinPrepared")
	}
}
