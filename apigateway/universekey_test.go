package apigateway

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// listed returns the values of a field in a list response.
func listed(r *reply, field string) []string {
	var out []string
	all, _ := r.body.([]any)
	for _, one := range all {
		fields, _ := one.(map[string]any)
		text, _ := fields[field].(string)
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

func TestAnInstanceSeesTheConfigurationsAndInstancesOfItsNetworksWithUniversesKey(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 8192})
	for _, g := range []string{"bank", "games", "lobby", "vault"} {
		s.group(g, nil)
	}
	lobby, games, bank, vault := s.inside("lobby", "node-1"), s.inside("games", "node-1"), s.inside("bank", "node-1"), s.inside("vault", "node-1")
	sees := func(who *inside, want ...string) {
		t.Helper()
		if got := listed(who.do("GET", "/api/instances", nil).want(200), "configurationName"); !slices.Equal(got, want) {
			t.Errorf("%s sees instances of %v, want %v", who.token, got, want)
		}
		if got := listed(who.do("GET", "/api/configurations", nil).want(200), "name"); !slices.Equal(got, want) {
			t.Errorf("%s sees configurations %v, want %v", who.token, got, want)
		}
		for _, of := range []*inside{lobby, games, bank, vault} {
			group, status := strings.TrimSuffix(of.token, "-1"), http.StatusForbidden
			if slices.Contains(want, group) {
				status = http.StatusOK
			}
			who.do("GET", "/api/instances/"+string(of.id), nil).want(status)
			who.do("GET", "/api/configurations/"+group, nil).want(status)
		}
	}
	sees(lobby, "bank", "games", "lobby", "vault")
	s.do("POST", "/api/v1/networks", `{"name":"main","lobbyGroup":"lobby","memberGroups":["games"]}`).want(201)
	sees(lobby, "games", "lobby")
	sees(games, "games", "lobby")
	sees(bank, "bank", "vault")
	if got := listed(s.do("GET", "/api/instances", nil).want(200), "configurationName"); len(got) != 4 {
		t.Errorf("an administrator sees %v", got)
	}
	lobby.do("GET", "/api/cluster/nodes", nil).want(200).is("0.id", "node-1")
}

func TestUniversesKeyShowsNoEnvironmentAndNoPropertyWithASecret(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 8192})
	s.do("PUT", "/api/v1/secrets/forwarding", `{"value":"hush"}`).want(201)
	s.do("PUT", "/api/configurations/lobby", `{"command":"sleep 1","cpu":0,"environmentVariables":{"A":"env-value"},"properties":{"motd":"hi","forwarding":"secret:forwarding","dbPassword":"clear"},`+
		`"configRules":[{"file":"a.yml","op":"SET","path":"a","value":"rule-value"}]}`).want(204)
	lobby := s.inside("lobby", "node-1")
	for _, path := range []string{"/api/configurations", "/api/configurations/lobby"} {
		r := lobby.do("GET", path, nil).want(200)
		if !strings.Contains(r.raw, `"properties":{"motd":"hi"}`) {
			t.Errorf("%s: %s", path, r.raw)
		}
		for _, hidden := range []string{"env-value", "environmentVariables", "forwarding", "clear", "rule-value"} {
			if strings.Contains(r.raw, hidden) {
				t.Errorf("%s shows %s: %s", path, hidden, r.raw)
			}
		}
	}
	s.do("GET", "/api/configurations/lobby", nil).want(200).is("environmentVariables.A", "env-value").is("properties.dbPassword", "clear")
}

func TestRequestsWithUniversesKeyNeverCountAsAnonymous(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Limits.Anonymous = 5 })
	s.node("node-1", fleet.Resources{MemoryMiB: 8192})
	s.group("lobby", nil)
	lobby := s.inside("lobby", "node-1")
	for range 10 {
		lobby.do("GET", "/api/instances", nil).want(200)
		lobby.do("GET", "/api/ping", nil).want(200)
		lobby.do("GET", "/api/templates", nil).want(403).naming("with its own token")
		lobby.do("GET", "/api/v1/events/stream", nil).want(403)
		lobby.do("POST", "/api/instances", `{"configurationName":"lobby"}`).want(403)
	}
	for range 5 {
		s.as("nobody's").do("GET", "/api/instances", nil).want(401)
	}
	s.as("nobody's").do("GET", "/api/instances", nil).want(429)
	lobby.do("GET", "/api/instances", nil).want(200)
}

func TestAConfigurationWithoutACommandHasNone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("PUT", "/api/configurations/bare", `{"command":""}`).want(204)
	s.do("GET", "/api/configurations/bare", nil).want(200).is("command", "")
	s.do("GET", "/api/v1/groups/bare", nil).want(200).is("command", "").is("jarFile", "")
	s.do("PATCH", "/api/v1/groups/bare", `{"maintenance":true}`).want(200)
	s.do("PUT", "/api/configurations/bare", `{"command":"run"}`).want(204)
	s.do("PATCH", "/api/v1/groups/bare", `{"command":""}`).want(422).naming("command must be given when there is no jarFile")
	s.do("POST", "/api/v1/groups", `{"name":"native","jarFile":""}`).want(422).naming("command")
}

func TestOfEightCreatesOfAStaticConfigurationOneIsDone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	other := second(t, s)
	s.node("node-1", fleet.Resources{MemoryMiB: 8192})
	s.do("PUT", "/api/configurations/world", `{"static":true,"command":"run","cpu":0,"ramMB":64,"minimumServiceCount":0}`).want(204)
	eventually(t, other, "GET", "/api/configurations/world", 200)
	create := func(at *site) *reply { return at.do("POST", "/api/instances", `{"configurationName":"world"}`) }
	answers := make(chan int, 8)
	for n := range cap(answers) {
		at := s
		if n%2 == 1 {
			at = other.as(s.token)
		}
		go func() { answers <- create(at).status }()
	}
	got := map[int]int{}
	for range cap(answers) {
		got[<-answers]++
	}
	if got[201] != 1 || got[409] != 7 {
		t.Fatalf("answers by status: %v", got)
	}
	first, _ := s.view.Snapshot().Find("world-1")
	create(s).want(409).naming("has the instance world-1")

	s.status(first.Intent.ID, "node-1", fleet.Status{State: fleet.Stopped})
	create(s).want(201).is("id", first.Intent.ID) // again, with its data
	s.do("POST", "/api/v1/groups/world/start", `{"count":2}`).want(200)
	s.do("PUT", "/api/configurations/world", `{"static":true,"command":"run","cpu":0,"ramMB":64,"minimumServiceCount":4}`).want(204)
	create(s).want(201)
	create(s).want(409)
	s.do("POST", "/api/commands/execute", `{"command":"instance create world"}`).want(200).is("success", false).naming("world is static")
}

func TestAFrozenInstanceIsShownSoAndStaysInUniversesList(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(time.Hour) } })
	s.node("node-1", fleet.Resources{MemoryMiB: 8192})
	s.group("lobby", map[string]any{"static": true})
	lobby := s.inside("lobby", "node-1")
	id := string(lobby.id)
	s.do("GET", "/api/instances/"+id, nil).want(200).is("frozen", false)
	s.do("POST", "/api/v1/services/lobby-1/freeze", nil).want(200).is("changed", true).is("status", "frozen").is("instance.frozen", true)
	s.do("POST", "/api/v1/services/lobby-1/freeze", nil).want(200).is("changed", false)
	s.do("GET", "/api/instances/"+id, nil).want(200).is("frozen", true)
	s.do("DELETE", "/api/instances/"+id, nil).want(200)
	s.status(lobby.id, "node-1", fleet.Status{State: fleet.Stopped})
	s.do("GET", "/api/instances", nil).want(200).is("0.id", id).is("0.state", "STOPPED").is("0.frozen", true)
	s.do("POST", "/api/instances", `{"configurationName":"lobby"}`).want(409).naming("lobby-1")
	s.do("PATCH", "/api/instances/"+id+"/lifecycle?target=UNFREEZE", nil).want(200).is("message", "Instance "+id+" unfrozen").is("instance.frozen", false)
	s.do("PATCH", "/api/instances/"+id+"/lifecycle?target=thaw", nil).want(400)
	s.do("POST", "/api/instances", `{"configurationName":"lobby"}`).want(201).is("id", id)
	s.user("eve", "VIEWER").do("POST", "/api/v1/services/lobby-1/freeze", nil).want(403)
}

func TestAnInstanceThatEndsDuringItsRequestStillSeesOnlyItsNetworks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 8192})
	s.group("lobby", nil)
	s.group("vault", nil)
	s.do("POST", "/api/v1/networks", `{"name":"main","lobbyGroup":"lobby"}`).want(201)
	vault := s.inside("vault", "node-1")
	for _, tc := range []struct {
		route, path string
		status      int
	}{
		{"/api/instances", "/api/instances", 200},
		{"/api/instances/:id", "/api/instances/" + string(vault.id), 403},
		{"/api/configurations", "/api/configurations", 200},
		{"/api/configurations/:name", "/api/configurations/vault", 403},
	} {
		lobby := s.inside("lobby", "node-1")
		late, _ := s.routeOf("GET", tc.path)
		if late.Path != tc.route {
			t.Fatalf("%s is served by %s", tc.path, late.Path)
		}
		answer := late.Handle
		late.Path = tc.route + "/late"
		late.Handle = func(c *gin.Context) { // the caller is authenticated; its instance ends now
			s.remove(lobby.id)
			answer(c)
		}
		s.gateway.frame.Add(late)
		r, err := lobby.try("GET", tc.path+"/late", nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.want(tc.status); strings.Contains(r.raw, `"vault`) {
			t.Errorf("%s shows the instance of another network: %s", tc.path, r.raw)
		}
	}
}

// remove deletes the records of an instance.
func (s *site) remove(id fleet.InstanceID) {
	s.t.Helper()
	i, ok := s.view.Snapshot().Instances.Get(id)
	if !ok {
		s.t.Fatalf("no instance %s", id)
	}
	s.commit(
		store.Remove(keys.Intent(id), i.Intent.ModRev),
		store.Remove(keys.Placement(i.Placement.Node, id), i.Placement.ModRev),
		store.Remove(keys.Status(id), i.Status.ModRev),
	)
}
