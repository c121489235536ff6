package apigateway

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
)

// ownRoutes are the routes that accept an instance's own token, with the instances that may use them:
// all, or only those of a proxy group.
var ownRoutes = map[string]string{
	"POST /api/plugin/auth/refresh":      "every instance",
	"POST /api/plugin/events":            "every instance",
	"POST /api/plugin/events/ticket":     "every instance",
	"GET /api/plugin/groups":             "every instance",
	"POST /api/plugin/heartbeat":         "every instance",
	"GET /api/plugin/instances":          "every instance",
	"POST /api/plugin/message/send":      "every instance",
	"POST /api/plugin/metrics":           "every instance",
	"POST /api/plugin/player-join":       "every instance",
	"POST /api/plugin/player-leave":      "every instance",
	"GET /api/plugin/players":            "every instance",
	"POST /api/plugin/ready":             "every instance",
	"POST /api/plugin/transfer":          "every instance",
	"POST /api/plugin/transfer-to-group": "every instance",
	"POST /api/proxy/auth/refresh":       "every instance",
	"POST /api/proxy/events":             "every instance",
	"POST /api/proxy/events/ticket":      "every instance",
	"GET /api/proxy/groups":              "every instance",
	"POST /api/proxy/heartbeat":          "every instance",
	"GET /api/proxy/instances":           "every instance",
	"POST /api/proxy/messages/:id/ack":   "proxies",
	"GET /api/proxy/messages/pending":    "proxies",
	"POST /api/proxy/metrics":            "every instance",
	"GET /api/proxy/networks":            "proxies",
	"GET /api/proxy/pending-transfers":   "proxies",
	"POST /api/proxy/player-join":        "proxies",
	"POST /api/proxy/player-leave":       "every instance",
	"GET /api/proxy/players":             "proxies",
	"POST /api/proxy/ready":              "every instance",
	"POST /api/proxy/transfer-ack/:uuid": "proxies",
	"POST /api/proxy/wake":               "proxies",
	"GET /api/cluster/nodes":             "every instance",
	"GET /api/configurations":            "every instance",
	"GET /api/configurations/:name":      "every instance",
	"GET /api/instances":                 "every instance",
	"GET /api/instances/:id":             "every instance",
	"PUT /api/instances/:id/state":       "the instance itself",
}

func TestAnInstancesTokenReachesItsOwnRoutesAndNoOthers(t *testing.T) {
	t.Parallel()
	b := besiege(t)
	b.group("games", nil)
	b.do("PUT", "/api/v1/networks/net", `{"name":"net","lobbyGroup":"lobby","memberGroups":["games"]}`).want(200)
	game := b.inside("games", "node-1")
	found := map[string]bool{}
	for _, r := range b.routes() {
		name := r.Method + " " + r.Path
		found[name] = true
		before := b.revision()
		as := b.as(game.token)
		body := ifAny(b.body(r))
		send := func(path string) *reply { return as.do(r.Method, path, body) }
		path := b.path(r, -1, "")
		switch who, own := ownRoutes[name]; {
		case own != r.Demand.Self():
			t.Errorf("%s: it accepts an instance's token: %v, the table says %v", name, r.Demand.Self(), own)
		case who == "the instance itself": // the path names another instance
			if got := send(path); got.status != http.StatusForbidden {
				t.Errorf("%s of another instance: %d %s", name, got.status, got.raw)
			}
		case who == "proxies":
			send(path).want(http.StatusForbidden).naming("only proxies may")
		case who == "every instance" && r.Method == http.MethodGet:
			send(path).want(http.StatusOK)
		case who == "every instance":
			if got := send(path); got.status == http.StatusUnauthorized || got.status == http.StatusForbidden {
				t.Errorf("%s: %d %s", name, got.status, got.raw)
			}
			continue // it may write
		case r.Demand.Open():
			if got, anonymous := send(path), b.as("").do(r.Method, path, body); got.status != anonymous.status {
				t.Errorf("%s: %d with an instance's token, %d without one", name, got.status, anonymous.status)
			}
		default:
			if got := send(path); got.status != http.StatusForbidden {
				t.Errorf("%s: %d %s", name, got.status, got.raw)
			}
		}
		if keys := b.moved(before); len(keys) > 0 {
			t.Errorf("%s: an instance's token wrote %v", name, keys)
		}
	}
	for name := range ownRoutes {
		if !found[name] {
			t.Errorf("there is no route %s", name)
		}
	}
}

// ifAny returns body, or nil for "".
func ifAny(body string) any {
	if body == "" {
		return nil
	}
	return body
}

func TestAServerSeesAndMovesOnlyPlayersOnItselfAndOnItsNetworks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 8192})
	for _, g := range []string{"lobby", "games", "bank"} {
		s.group(g, nil)
	}
	s.group("edge", map[string]any{"platform": "VELOCITY"})
	lobby, second, games, bank, edge := s.inside("lobby", "node-1"), s.inside("lobby", "node-1"), s.inside("games", "node-1"), s.inside("bank", "node-1"), s.inside("edge", "node-1")
	s.publish("node-1", steve, players.Presence{By: lobby.id})
	s.publish("node-1", alex, players.Presence{By: games.id})
	s.publish("node-1", herobrine, players.Presence{By: bank.id}, players.Presence{By: edge.id, Proxy: true, On: bank.id})

	sees := func(who *inside, path string, want ...players.PlayerID) {
		t.Helper()
		var got []players.PlayerID
		for _, p := range who.list(path) {
			id, _ := p["id"].(string)
			got = append(got, players.PlayerID(id))
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s sees %v at %s, want %v", who.token, got, path, want)
		}
	}
	move := func(who *inside, player players.PlayerID) *reply {
		t.Helper()
		toGroup := who.say("/api/plugin/transfer-to-group", `{"playerUuid":"`+string(player)+`","group":"games"}`)
		to := who.say("/api/plugin/transfer", `{"playerUuid":"`+string(player)+`","targetInstanceId":"games-1"}`)
		if to.status != toGroup.status {
			t.Errorf("to an instance %d %s, to a group %d %s", to.status, to.raw, toGroup.status, toGroup.raw)
		}
		return to
	}
	// Groups in no network see each other.
	for _, who := range []*inside{lobby, second, bank, edge} {
		sees(who, "/api/plugin/players", steve, alex, herobrine)
	}
	sees(edge, "/api/proxy/players", steve, alex, herobrine)
	move(second, steve).want(200)
	move(bank, alex).want(200)
	move(edge, alex).want(200)

	s.do("POST", "/api/v1/networks", `{"name":"main","lobbyGroup":"lobby","memberGroups":["games"],"proxyGroups":["edge"]}`).want(201)
	sees(lobby, "/api/plugin/players", steve, alex)
	sees(second, "/api/plugin/players", steve, alex)
	sees(bank, "/api/plugin/players", herobrine)
	sees(edge, "/api/plugin/players", steve, alex, herobrine) // also players that came through it
	sees(edge, "/api/proxy/players", steve, alex, herobrine)
	before := s.revision()
	move(bank, steve).want(404).naming("on this server or on its networks")
	move(lobby, herobrine).want(404)
	move(games, herobrine).want(404)
	for _, path := range []string{"/api/proxy/players", "/api/proxy/networks"} {
		lobby.do("GET", path, nil).want(403).naming("only proxies may")
	}
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("what was refused wrote something: %v", keys)
	}
	move(lobby, steve).want(200)
	move(second, steve).want(200)
	move(games, steve).want(200)
	move(edge, alex).want(200)

	// A server that claims a player of another network gains no access.
	games.say("/api/plugin/player-join", `{"uuid":"`+string(herobrine)+`","name":"Herobrine"}`).want(200)
	if got := move(games, herobrine).want(409).naming("is on another server"); strings.Contains(got.raw, "bank") {
		t.Errorf("the refusal names the server: %s", got.raw)
	}
	bank.say("/api/plugin/player-leave", `{"uuid":"`+string(herobrine)+`"}`).want(200)
	s.publish("node-1", herobrine, players.Presence{By: edge.id, Proxy: true, On: games.id})
	move(games, herobrine).want(200)
}
