package apigateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/naming"
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

func TestANameOfAStaticInstanceIsUniqueInTheFleet(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.group("world", map[string]any{"static": true, "staticInstanceNames": []string{"hub", "games-1", "world-2"}})
	s.group("plain", map[string]any{"static": true})
	s.start("plain")
	before := s.revision()
	for _, c := range []struct{ names, field, says string }{
		{`["x","Hub"]`, "staticInstanceNames[1]", "in staticInstanceNames of group world"},
		{`["lobby-7"]`, "staticInstanceNames[0]", "a name for instances of group lobby"},
		{`["world-1"]`, "staticInstanceNames[0]", "a name for instances of group world"},
	} {
		s.do("PUT", "/api/v1/groups/other", `{"static":true,"staticInstanceNames":`+c.names+`}`).want(422).naming(c.field).naming(c.says)
		s.do("PATCH", "/api/v1/groups/lobby", `{"static":true,"staticInstanceNames":`+strings.ReplaceAll(c.names, "lobby-7", "plain-7")+`}`).want(422).naming(c.field)
	}
	var many []string
	for n := range 17 {
		many = append(many, fmt.Sprintf("%q", fmt.Sprintf("later%d-1", n)))
	}
	s.do("PUT", "/api/v1/groups/other", `{"static":true,"staticInstanceNames":[`+strings.Join(many, ",")+`]}`).want(422).naming("staticInstanceNames").naming("17 groups")
	s.do("PUT", "/api/v1/groups/games", `{}`).want(422).naming("group world")
	s.do("PATCH", "/api/v1/groups/plain", `{"staticInstanceNames":["new"]}`).want(422).naming("staticInstanceNames").naming("plain-1")
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused request wrote something: %v", keys)
	}
	s.do("PATCH", "/api/v1/groups/plain", `{"staticInstanceNames":["plain-1","new"]}`).want(200)
	s.do("PATCH", "/api/v1/groups/world", `{"staticInstanceNames":["world-2"]}`).want(200)
	s.do("PATCH", "/api/v1/groups/plain", `{"staticInstanceNames":["plain-1","HUB"]}`).want(200)
	s.group("games", nil)
}

func TestTwoGatewaysNeverGiveTheSameName(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const n = 6
	statuses := make(chan int, n)
	for i := range n {
		go func() {
			group, spec := fmt.Sprintf("g%d", i), `{"static":true,"staticInstanceNames":["hub","race-1"]}`
			if i == 0 {
				group, spec = "race", `{}`
			}
			status := 0
			if r, err := s.try("PUT", "/api/v1/groups/"+group, spec); err == nil {
				status = r.status
			}
			statuses <- status
		}()
	}
	made := 0
	for range n {
		if <-statuses == 201 {
			made++
		}
	}
	names := 0
	for _, g := range s.view.Snapshot().Groups.All() {
		names += len(naming.Fixed(&g.Spec))
	}
	if made != 1 || names > 2 {
		t.Errorf("%d groups were created, with %d names", made, names)
	}
}
