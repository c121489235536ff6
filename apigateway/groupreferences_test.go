package apigateway

import (
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestAGroupWithAnUnknownReferenceOrModeIsRefusedWithTheFieldAndTheValue(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	before := s.revision()
	for _, c := range []struct{ field, body, value string }{
		{"fallbackGroup", `{"fallbackGroup":"nowhere"}`, "nowhere"},
		{"bedrockProxyGroup", `{"bedrockProxyGroup":"nowhere"}`, "nowhere"},
		{"parent", `{"parent":"nowhere"}`, "nowhere"},
		{"dependsOn[0]", `{"dependsOn":["nowhere"]}`, "nowhere"},
		{"templates[0]", `{"templates":["nothing"]}`, "nothing"},
		{"motdMode", `{"motdMode":"SHUFFLED"}`, "SHUFFLED"},
		{"staticInstanceNames[1]", `{"static":true,"staticInstanceNames":["alpha","../beta"]}`, "../beta"},
		{"staticInstanceNames[1]", `{"static":true,"staticInstanceNames":["alpha","ALPHA"]}`, "ALPHA"},
	} {
		s.do("PATCH", "/api/v1/groups/lobby", c.body).want(422).naming(c.field).naming(c.value)
		s.do("PUT", "/api/v1/groups/other", c.body).want(422).naming(c.field).naming(c.value)
	}
	s.do("PATCH", "/api/v1/groups/lobby", `{"fallbackGroup":"lobby"}`).want(422).naming("fallbackGroup")
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused request wrote something: %v", keys)
	}
	s.do("PATCH", "/api/v1/groups/lobby", `{"motdMode":"sequential","staticInstanceNames":["alpha","beta"]}`).want(200).is("motdMode", "SEQUENTIAL")
}

func TestAGroupThatIsAFallbackIsNotDeleted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.group("geyser", nil)
	s.group("games", map[string]any{"fallbackGroup": "lobby", "bedrockProxyGroup": "geyser"})
	for _, name := range []string{"lobby", "geyser"} {
		s.do("DELETE", "/api/v1/groups/"+name, nil).want(422).naming("games")
	}
	s.do("PATCH", "/api/v1/groups/games", `{"fallbackGroup":null,"bedrockProxyGroup":""}`).want(200)
	s.do("DELETE", "/api/v1/groups/lobby", nil).want(204)
	s.do("DELETE", "/api/v1/groups/geyser", nil).want(204)
}

func TestAGroupSaysWhichOfItsDependenciesDoesNotRun(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("base", nil)
	s.group("user", map[string]any{"dependsOn": []string{"base"}})
	const waits = "it starts nothing while no instance runs of base (dependsOn)"
	s.do("GET", "/api/v1/groups/user", nil).want(200).is("message", waits)
	s.do("PATCH", "/api/v1/groups/user?dryRun=true", `{"minInstances":2}`).want(200).is("placements", []any{}).naming("2 instances would start later: " + waits)
	id := s.start("base")
	s.hold(id, "node-1", fleet.Resources{MemoryMiB: 64})
	s.status(id, "node-1", fleet.Status{State: fleet.Online})
	s.do("GET", "/api/v1/groups/user", nil).want(200).is("message", "")
}
