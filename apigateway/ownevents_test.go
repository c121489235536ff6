package apigateway

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/stream/relay"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
)

// alex and herobrine are two more players.
const (
	alex      players.PlayerID = "853c80ef-3c37-49fd-aa49-938b674adae6"
	herobrine players.PlayerID = "f84c6a79-0a4e-45e0-879b-cd49ebd4c4e2"
)

// watch opens an instance's event stream at a gateway.
func (i *inside) watch(at *site, query string) *await.Text {
	i.t.Helper()
	ticket := i.do("POST", "/api/plugin/events/ticket", nil).want(200).is("expiresInSeconds", 30).field("ticket").(string)
	return at.as("").stream("/api/v1/events/stream?ticket=" + ticket + query)
}

// comes waits for a text in a stream and checks that others never came.
func comes(t *testing.T, said *await.Text, text string, never ...string) {
	t.Helper()
	await.That(t, text+" is told", func() string {
		return await.Unless(strings.Contains(said.String(), text), "%s", said)
	})
	for _, other := range never {
		if strings.Contains(said.String(), other) {
			t.Errorf("%s was told: %s", other, said)
		}
	}
}

func TestAnInstanceSeesTheEventsOfItsOwnNetworkAndNobodyElsesPlayers(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	a.node("node-1", fleet.Resources{MemoryMiB: 8192})
	for _, g := range []string{"lobby", "games", "far"} {
		a.group(g, nil)
	}
	a.group("edge", map[string]any{"platform": "VELOCITY"})
	a.do("POST", "/api/v1/networks", `{"name":"main","lobbyGroup":"lobby","memberGroups":["games"]}`).want(201)
	lobby, games, far, edge := a.inside("lobby", "node-1"), a.inside("games", "node-1"), a.inside("far", "node-1"), a.inside("edge", "node-1")
	ofLobby, ofFar, ofEdge := lobby.watch(b, ""), far.refreshed().watch(b, ""), edge.watch(b, "")
	ofCrashes := lobby.watch(b, "&types=INSTANCE_CRASHED,NODE_CONNECTED,PLAYER_CONNECTED")

	a.publish("node-1", alex, players.Presence{By: far.id, Said: 1})
	a.publish("node-1", steve, players.Presence{By: games.id, Said: 1}, players.Presence{By: edge.id, Proxy: true, On: games.id, Said: 1})
	comes(t, ofLobby, string(steve), string(alex))
	comes(t, ofCrashes, string(steve), string(alex))
	comes(t, ofEdge, string(steve))
	comes(t, ofEdge, string(alex)) // no network contains either group
	a.status(far.id, "node-1", fleet.Status{State: fleet.Starting, TokenHash: hashOf(far.token)})
	comes(t, ofFar, "INSTANCE_STATE_CHANGED")
	comes(t, ofFar, string(alex), string(steve))
	comes(t, ofLobby, "INSTANCE_STATE_CHANGED")

	a.do("PUT", "/api/v1/networks/main", `{"name":"main","lobbyGroup":"lobby","memberGroups":["games","far"]}`).want(200)
	comes(t, ofFar, "NETWORK_UPDATED")
	a.publish("node-1", herobrine, players.Presence{By: lobby.id, Said: 1})
	comes(t, ofFar, string(herobrine), string(steve))
	for _, said := range []*await.Text{ofLobby, ofFar, ofEdge, ofCrashes} {
		for _, never := range []string{"NODE_", "INSTANCE_CRASHED", "TEMPLATE_"} {
			if strings.Contains(said.String(), never) {
				t.Errorf("%s was told: %s", never, said)
			}
		}
	}
}

func TestTheStreamOfAnInstanceEndsWithItsTokens(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	a.node("node-1", fleet.Resources{MemoryMiB: 4096})
	a.group("lobby", nil)
	one, two, three := a.inside("lobby", "node-1"), a.inside("lobby", "node-1"), a.inside("lobby", "node-1")
	revoked, ended, stays := one.watch(b, ""), two.watch(b, ""), three.watch(b, "")
	unused := one.do("POST", "/api/proxy/events/ticket", nil).want(200).field("ticket").(string)
	console := three.do("POST", "/api/plugin/events/ticket", nil).want(200).field("ticket").(string)
	a.as("").do("GET", "/api/v1/services/lobby-3/console?ticket="+console, nil).want(401)
	a.as("").do("GET", "/api/v1/events/stream?ticket="+console, nil).want(401) // already used
	three.do("GET", "/api/v1/events/stream", nil).want(403)
	a.do("POST", "/api/plugin/events/ticket", nil).want(401)

	a.do("DELETE", "/api/v1/workloads/credentials/instances/lobby-1", nil).want(200)
	a.status(two.id, "node-1", fleet.Status{State: fleet.Stopped, TokenHash: hashOf(two.token)})
	comes(t, revoked, "cut off: ")
	comes(t, ended, "cut off: ")
	b.as("").do("GET", "/api/v1/events/stream?ticket="+unused, nil).want(401)
	a.group("another", nil)
	comes(t, stays, "another", "cut off")
}

func TestAnInstanceHasFewStreamsAndNoTicketForMore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	lobby, other := s.inside("lobby", "node-1"), s.inside("lobby", "node-1")
	fifth := lobby.do("POST", "/api/plugin/events/ticket", nil).want(200).field("ticket").(string)
	for range 4 {
		lobby.watch(s, "")
	}
	if got := s.as("").do("GET", "/api/v1/events/stream?ticket="+fifth, nil).want(429).is("error.code", "TOO_MANY_STREAMS").header.Get("Retry-After"); got != "60" {
		t.Errorf("it is to come again in %q", got)
	}
	before := s.revision()
	lobby.do("POST", "/api/plugin/events/ticket", nil).want(429).is("error.code", "TOO_MANY_STREAMS")
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a ticket was written that nothing comes of: %v", keys)
	}
	other.watch(s, "")
}

// meet waits until two gateways know each other.
func meet(t *testing.T, a, b *site) {
	t.Helper()
	for _, s := range []*site{a, b} {
		await.That(t, "the gateways know of each other", func() string {
			n := len(s.view.Snapshot().ServiceSessions(serviceName))
			return await.Unless(n == 2, "%d", n)
		})
	}
}

func TestWhatAnInstanceSaysReachesTheStreamsOfAllGatewaysAndOfItsNeighboursAlone(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	meet(t, a, b)
	agent := a.node("node-1", fleet.Resources{MemoryMiB: 8192})
	for _, g := range []string{"lobby", "games", "far"} {
		a.group(g, nil)
	}
	a.do("POST", "/api/v1/networks", `{"name":"main","lobbyGroup":"lobby","memberGroups":["games"]}`).want(201)
	lobby, games, far := a.inside("lobby", "node-1"), a.inside("games", "node-1"), a.inside("far", "node-1")
	here, there, narrow := a.stream("/api/v1/events/stream"), b.stream("/api/v1/events/stream"), b.stream("/api/v1/events/stream?types=chat:Line&group=lobby")
	ofGames, ofFar := games.watch(b, ""), far.watch(a, "")

	far.say("/api/plugin/events", `{"type":"FAR:ONE","data":{"n":1}}`).want(200)
	lobby.say("/api/plugin/events", `{"type":"chat:Line","data":{"text":"hi","n":9007199254740993},"more":1}`).want(200).is("status", "ok")
	lobby.say("/api/proxy/events", `{"type":"ROUND_OVER"}`).want(200)
	const said = `"payload":{"text":"hi","n":9007199254740993},"source":"lobby-1"`
	for _, stream := range []*await.Text{here, there} {
		comes(t, stream, said)
		comes(t, stream, `"type":"ROUND_OVER"`)
		comes(t, stream, `"payload":null`)
		comes(t, stream, "FAR:ONE")
	}
	comes(t, narrow, said, "ROUND_OVER", "FAR:ONE")
	comes(t, ofGames, "ROUND_OVER", "FAR:ONE")
	comes(t, ofFar, "FAR:ONE", "ROUND_OVER", "chat:Line")

	lobby.say("/api/plugin/metrics", `{"tps1m":19.5,"playerCount":3,"maxPlayers":20,"serverVersion":"x"}`).want(200)
	far.say("/api/proxy/metrics", `{"proxyUptimeMs":5,"playerPings":[{"uuid":"`+string(steve)+`","username":"Steve","ping":3}]}`).want(200)
	games.say("/api/plugin/events", `{"type":"LAST"}`).want(200)
	for _, stream := range []*await.Text{here, there} {
		comes(t, stream, `"type":"INSTANCE_METRICS"`)
		comes(t, stream, `"tps1m":19.5`, string(steve))
	}
	comes(t, ofGames, "LAST", "INSTANCE_METRICS")

	agent.mu.Lock()
	before := len(agent.beats)
	agent.mu.Unlock()
	for body, field := range map[string]string{
		`{"data":1}`: "type", `{"type":"a b"}`: "type", `{"type":"` + strings.Repeat("x", 65) + `"}`: "type", `{"type":"group_Deleted"}`: "type",
		`{"type":"MODULE_LOADED"}`: "type", `{"type":"X","data":"` + strings.Repeat("x", 16<<10) + `"}`: "data",
	} {
		lobby.say("/api/plugin/events", body).want(422).naming(field)
	}
	lobby.do("POST", "/api/plugin/events", `{"type":"X"}`, "X-Prexor-Sequence", "1").want(401)
	lobby.do("POST", "/api/plugin/events", `{"type":"X"}`).want(400)
	a.do("POST", "/api/plugin/events", `{"type":"X"}`).want(401)
	agent.mu.Lock()
	defer agent.mu.Unlock()
	if len(agent.beats) != before {
		t.Errorf("an event that was refused used up a number")
	}
}

func TestPeerEventsNeedClusterSecret(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	said := s.stream("/api/v1/events/stream")
	tell := func(by *site, to, typ string) *reply {
		t.Helper()
		r, err := by.try("POST", relay.Path, map[string]any{"from": "x", "to": to, "events": []any{map[string]any{"type": typ, "fields": map[string]any{}}}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	own := s.gateway.cfg.Replica
	tell(s, own, "OF_A_USER").want(404)
	tell(s.as(""), own, "OF_NOBODY").want(404)
	gateway := s.as(secret)
	tell(gateway, "another", "OF_ANOTHER").want(204)
	if r, err := gateway.try("POST", relay.Path, `{"events":`); err != nil || r.status != 400 {
		t.Errorf("half a batch: %v, %v", r, err)
	}
	if r, err := gateway.try("GET", relay.Path, nil); err != nil || r.status != 404 {
		t.Errorf("a question: %v, %v", r, err)
	}
	tell(gateway, own, "OF_A_GATEWAY").want(204)
	comes(t, said, "OF_A_GATEWAY", "OF_ANOTHER", "OF_A_USER", "OF_NOBODY")
}

func TestTheRequestsOfAnInstanceAreBoundedAndCountForItAlone(t *testing.T) {
	t.Parallel()
	var later atomic.Int64
	begin := time.Now()
	s := newSite(t, func(c *Config) { c.Now = func() time.Time { return begin.Add(time.Duration(later.Load())) } })
	s.node("node-1", fleet.Resources{MemoryMiB: 1024})
	s.group("lobby", nil)
	loud, other := s.inside("lobby", "node-1"), s.inside("lobby", "node-1")
	for n := range 2000 {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/api/plugin/groups", nil)
		r.Header.Set("Authorization", "Bearer "+loud.token)
		w := httptest.NewRecorder()
		if s.gateway.frame.ServeHTTP(w, r); w.Code != 200 {
			t.Fatalf("request %d: %d %s", n, w.Code, w.Body)
		}
	}
	loud.do("GET", "/api/plugin/groups", nil).want(429).is("error.code", "RATE_LIMITED")
	loud.say("/api/plugin/metrics", `{"tps1m":20}`).want(429)
	loud.do("GET", "/api/instances/"+string(loud.id), nil).want(429)
	other.do("GET", "/api/plugin/groups", nil).want(200)
	s.do("GET", "/api/instances/"+string(loud.id), nil).want(200)
	later.Store(int64(10 * time.Second))
	loud.do("GET", "/api/plugin/groups", nil).want(200)
}

func TestOfTheFiguresAnInstanceSendsFewAreToldOfAndAllAreTaken(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newSite(t, func(c *Config) { c.Now = func() time.Time { return now } })
	s.node("node-1", fleet.Resources{MemoryMiB: 1024})
	s.group("lobby", nil)
	lobby, stream := s.inside("lobby", "node-1"), s.stream("/api/v1/events/stream")
	for n := range 5 {
		lobby.say("/api/plugin/metrics", fmt.Sprintf(`{"tps1m":%d}`, 101+n)).want(200)
	}
	lobby.say("/api/plugin/events", `{"type":"AFTER_ALL"}`).want(200)
	comes(t, stream, "AFTER_ALL", `"tps1m":103`, `"tps1m":105`)
	comes(t, stream, `"tps1m":102`)
}
