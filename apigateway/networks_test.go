package apigateway

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// mainNetwork refers to the groups of networkGroups.
const mainNetwork = `{"name":"main","description":"all of it","lobbyGroup":"lobby","fallbackGroups":["limbo"],"memberGroups":["arena"],"proxyGroups":["edge"],"kickMessage":"come back later"}`

func networkGroups(s *site) {
	for _, name := range []string{"lobby", "limbo", "arena"} {
		s.group(name, nil)
	}
	s.group("edge", map[string]any{"platform": "VELOCITY"})
}

func TestANetworkIsTheSameOnEveryGateway(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	networkGroups(a)
	a.do("GET", "/api/v1/networks", nil).want(200).is("total", 0).is("data", []any{})
	made := a.do("POST", "/api/v1/networks", mainNetwork).want(201)
	made.is("name", "main").is("lobbyGroup", "lobby").is("fallbackGroups", []string{"limbo"}).is("memberGroups", []string{"arena"}).is("proxyGroups", []string{"edge"}).
		is("kickMessage", "come back later").is("bedrockLobbyGroup", "").is("bedrockFallbackGroups", []string{}).is("updatedBy", "admin")
	if made.header.Get("Location") != "/api/v1/networks/main" || made.header.Get("ETag") != fmt.Sprintf("%q", fmt.Sprint(made.field("revision"))) {
		t.Errorf("headers %v", made.header)
	}
	eventually(t, b, "GET", "/api/v1/networks/main", 200)
	read := b.do("GET", "/api/v1/networks/main", nil).want(200)
	if read.raw != made.raw {
		t.Errorf("read %s\nmade %s", read.raw, made.raw)
	}
	before := a.revision()
	b.do("PUT", "/api/v1/networks/main", read.raw).want(200)
	b.do("PUT", "/api/v1/networks/main?dryRun=true", `{"lobbyGroup":"limbo"}`).want(200).is("action", "update").naming("lobbyGroup")
	b.do("PUT", "/api/v1/networks/main", `{"lobbyGroup":"limbo"}`, "If-Match", `"1"`).want(412)
	b.do("DELETE", "/api/v1/networks/main", nil, "If-Match", `"1"`).want(412)
	b.do("DELETE", "/api/v1/networks/main?dryRun=true", nil).want(200).is("action", "delete")
	if keys := a.moved(before); len(keys) > 0 {
		t.Errorf("something was written: %v", keys)
	}
	b.do("PUT", "/api/v1/networks/main", `{"lobbyGroup":"limbo"}`, "If-Match", made.header.Get("ETag")).want(200).
		is("memberGroups", []string{}).is("createdAt", made.field("createdAt"))
	b.do("DELETE", "/api/v1/networks/main", nil).want(204)
	b.do("DELETE", "/api/v1/networks/main", nil).want(404)
	eventually(t, a, "GET", "/api/v1/networks/main", 404)
	a.do("PUT", "/api/v1/networks/main", `{"lobbyGroup":"limbo"}`).want(404)
	audit := a.do("GET", "/api/v1/audit", nil).want(200)
	for n, action := range []string{"network.delete", "network.update", "network.create"} {
		e := audit.data()[n].(map[string]any)
		if e["action"] != action || (e["before"] == nil) != (n == 2) || (e["after"] == nil) != (n == 0) {
			t.Errorf("entry %d: %v", n, e)
		}
	}
}

func TestInvalidNetworkIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	networkGroups(s)
	s.do("POST", "/api/v1/networks", mainNetwork).want(201)
	before := s.revision()
	for body, field := range map[string]string{
		`{"lobbyGroup":"lobby"}`:              "name",
		`{"name":"x"}`:                        "lobbyGroup",
		`{"name":"a b","lobbyGroup":"lobby"}`: "name",
		`{"name":"` + strings.Repeat("x", 33) + `","lobbyGroup":"lobby"}`:                    "name",
		`{"name":"x","lobbyGroup":"none"}`:                                                   "lobbyGroup",
		`{"name":"x","lobbyGroup":"lobby","fallbackGroups":["limbo","none"]}`:                "fallbackGroups[1]",
		`{"name":"x","lobbyGroup":"lobby","proxyGroups":["arena"]}`:                          "proxyGroups[0]",
		`{"name":"x","lobbyGroup":"lobby","bedrockLobbyGroup":"none"}`:                       "bedrockLobbyGroup",
		`{"name":"x","lobbyGroup":"lobby","kickMessage":"` + strings.Repeat("x", 257) + `"}`: "kickMessage",
	} {
		s.do("POST", "/api/v1/networks", body).want(422).naming(field)
	}
	s.do("POST", "/api/v1/networks", mainNetwork).want(409)
	s.do("PUT", "/api/v1/networks/main", `{"name":"other","lobbyGroup":"lobby"}`).want(422).naming("name")
	s.do("POST", "/api/v1/networks", `{"name":"x","lobbyGroup":"lobby","lobby":1}`).want(400)
	s.do("GET", "/api/v1/networks/none", nil).want(404)
	for _, g := range []string{"lobby", "limbo", "arena", "edge"} {
		s.do("DELETE", "/api/v1/groups/"+g, nil).want(422).naming("network main")
	}
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused request wrote something: %v", keys)
	}
	s.do("DELETE", "/api/v1/networks/main", nil).want(204)
	s.do("DELETE", "/api/v1/groups/arena", nil).want(204)
	s.do("POST", "/api/v1/networks", mainNetwork).want(422).naming("arena")
}

func TestOneOfTheCatalogsProxiesMayBeAProxyOfANetwork(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/catalog/FOREIGN/versions", `{"version":"1","downloadUrl":"https://x.example/1.jar","sha256":"`+strings.Repeat("a", 64)+`","category":"PROXY"}`).want(201)
	s.group("lobby", nil)
	s.group("edge", map[string]any{"platform": "FOREIGN"})
	s.do("POST", "/api/v1/networks", `{"name":"x","lobbyGroup":"lobby","proxyGroups":["edge"]}`).want(201)
}

func TestNoNetworkNamesAGroupThatIsDeletedAtTheSameTime(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	for n := range 10 {
		name := fmt.Sprintf("g%d", n)
		a.group(name, nil)
		eventually(t, b, "GET", "/api/v1/groups/"+name, 200)
		var both sync.WaitGroup
		both.Go(func() { _, _ = a.try("DELETE", "/api/v1/groups/"+name, nil) })
		both.Go(func() {
			_, _ = b.try("POST", "/api/v1/networks", fmt.Sprintf(`{"name":%q,"lobbyGroup":%q}`, name, name))
		})
		both.Wait()
		g, err := store.Get(t.Context(), a.store, keys.Group(fleet.GroupName(name)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Get(t.Context(), a.store, keys.Network(name)); err == nil && g.Deleting {
			t.Errorf("the network %s names a group that is being deleted", name)
		}
	}
}

func TestAGroupWhoseDeletionWasDecidedBeforeItWasNamedStays(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	for n, naming := range []struct{ path, body string }{ // the first mark, and how it moves
		{"/api/v1/networks", `{"name":"n0","lobbyGroup":"lobby"}`},
		{"/api/v1/networks", `{"name":"n1","lobbyGroup":"lobby"}`},
		{"/api/v1/groups", `{"name":"g0","parent":"lobby"}`},
		{"/api/v1/groups", `{"name":"g1","dependsOn":["lobby"]}`},
	} {
		m, err := store.Get(t.Context(), s.store, keys.MentionMark())
		guard := store.Unchanged(keys.MentionMark(), m.ModRev)
		if err != nil {
			guard = store.Missing(keys.MentionMark())
		}
		s.do("POST", naming.path, naming.body).want(201)
		if _, err := s.store.Commit(context.Background(), store.Txn{Guards: []store.Guard{guard}}); store.Lost(err) == nil {
			t.Errorf("a deletion decided before would be committed though %s %d names it: %v", naming.path, n, err)
		}
	}
}
