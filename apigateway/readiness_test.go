package apigateway

import (
	"encoding/json"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
)

// readinessOf returns the type of a group's readiness check in responses.
func (s *site) readinessOf(group string) any {
	s.t.Helper()
	return s.do("GET", "/api/v1/groups/"+group, nil).want(200).field("readiness.type")
}

func TestReadinessFollowsPlatformAndCommandUntilSomebodyChoosesOne(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, c := range []struct{ name, body, want string }{
		{"stock", `{"platform":"paper","platformVersion":"1.21","jarFile":"server.jar"}`, "any"},
		{"unnamed", `{"jarFile":"server.jar"}`, "none"},
		{"commanded", `{"platform":"PAPER","command":"./run"}`, "none"},
		{"chosen", `{"platform":"PAPER","readiness":{"type":"none"}}`, "none"},
		{"without", `{"platform":""}`, "none"},
	} {
		s.do("PUT", "/api/v1/groups/"+c.name, c.body).want(201)
		if got := s.readinessOf(c.name); got != c.want {
			t.Errorf("%s: the readiness is %v, want %s", c.body, got, c.want)
		}
	}
	change := func(group, patch, want string) {
		t.Helper()
		s.do("PATCH", "/api/v1/groups/"+group, patch).want(200)
		if got := s.readinessOf(group); got != want {
			t.Errorf("%s after %s: the readiness is %v, want %s", group, patch, got, want)
		}
	}
	change("stock", `{"maxPlayers":5}`, "any")
	change("stock", `{"command":"java -jar server.jar"}`, "none")
	change("stock", `{"command":null}`, "any")
	change("stock", `{"readiness":{"type":"port"}}`, "port")
	change("stock", `{"readiness":null}`, "any")
	change("unnamed", `{"maxPlayers":5}`, "none")
	change("unnamed", `{"platform":"VELOCITY"}`, "any")
	change("unnamed", `{"platform":null}`, "none")
	change("chosen", `{"maxPlayers":5}`, "none")
	for name := range s.view.Snapshot().Groups.All() {
		if g, _ := s.view.Snapshot().Groups.Get(name); g.Spec.Readiness.Type == fleet.CheckAny {
			t.Errorf("%s: the default is stored", name)
		}
	}
}

func TestAGroupWrittenBackAsItWasReadHasChosenNoReadiness(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, c := range []struct{ name, body, after string }{
		{"stock", `{"platform":"PAPER"}`, "any"}, {"unnamed", `{}`, "none"},
	} {
		s.do("PUT", "/api/v1/groups/"+c.name, c.body).want(201)
		var read map[string]any
		if err := json.Unmarshal([]byte(s.do("GET", "/api/v1/groups/"+c.name, nil).want(200).raw), &read); err != nil {
			t.Fatal(err)
		}
		s.do("PUT", "/api/v1/groups/"+c.name, read).want(200).is("readiness.type", c.after).is("revision", 1)
		read["command"] = "./run"
		s.do("PUT", "/api/v1/groups/"+c.name, read).want(200).is("readiness.type", "none")
		s.do("PATCH", "/api/v1/groups/"+c.name, `{"command":null}`).want(200).is("readiness.type", c.after)
	}
}

func TestAConfigurationWithACommandHasNoReadinessUntilAPlatformIsNamedAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("PUT", "/api/configurations/lobby", `{"command":"./run","platform":"PAPER"}`).want(204)
	if got := s.readinessOf("lobby"); got != "none" {
		t.Errorf("the readiness is %v, want none", got)
	}
	s.do("PATCH", "/api/v1/groups/lobby", `{"command":null,"jarFile":"server.jar"}`).want(200).is("readiness.type", "any")
}

func TestProxiesSeeAServerOnceItIsReady(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("games", map[string]any{"platform": "PAPER"})
	s.group("proxies", map[string]any{"platform": "VELOCITY"})
	game, proxy := s.start("games"), s.inside("proxies", "node-1")
	seen := func(path string) int {
		t.Helper()
		var list []map[string]any
		if err := json.Unmarshal([]byte(s.as(proxy.token).do("GET", path, nil).want(200).raw), &list); err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	for _, c := range []struct {
		state           fleet.State
		proxies, others int
	}{{fleet.Preparing, 0, 1}, {fleet.Starting, 0, 1}, {fleet.Online, 1, 1}, {fleet.Stopping, 0, 1}, {fleet.Stopped, 0, 0}} {
		s.status(game, "node-1", fleet.Status{State: c.state})
		if got := seen("/api/proxy/instances"); got != c.proxies {
			t.Errorf("%s: a proxy sees %d servers, want %d", c.state, got, c.proxies)
		}
		if got := seen("/api/plugin/instances"); got != c.others {
			t.Errorf("%s: servers see %d servers, want %d", c.state, got, c.others)
		}
	}
}
