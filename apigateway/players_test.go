package apigateway

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/api/system"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// steve is a player.
const steve players.PlayerID = "069a79f4-44e9-4726-a5be-fca90e38aaf5"

// inside is a running instance that calls the gateway with its own token.
type inside struct {
	*site
	id       fleet.InstanceID
	sequence int
}

// inside starts an instance of a group. Its name is its token.
func (s *site) inside(group string, node fleet.NodeID) *inside {
	s.t.Helper()
	id := s.start(group)
	i, _ := s.view.Snapshot().Instances.Get(id)
	s.status(id, node, fleet.Status{State: fleet.Online, TokenHash: hashOf(i.Intent.Name)})
	return &inside{site: s.as(i.Intent.Name), id: id}
}

// hashOf returns the hash of an instance's own token, as in its status.
func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// say sends a POST with the next sequence number.
func (i *inside) say(path string, body any) *reply {
	i.t.Helper()
	i.sequence++
	return i.do("POST", path, body, "X-Prexor-Sequence", fmt.Sprint(i.sequence))
}

// on returns the instance for calls to another gateway. The sequence numbers continue.
func (i *inside) on(s *site) *inside {
	other := *i
	other.site = s.as(i.token)
	return &other
}

// publish writes instances' reports about a player as the node's agent does.
func (s *site) publish(node fleet.NodeID, id players.PlayerID, told ...players.Presence) {
	s.t.Helper()
	key := keys.Players(node, id.Part())
	old, err := store.Get(s.t.Context(), s.store, key)
	if err != nil {
		old.ModRev = 0
	}
	for n := range told {
		told[n].Player, told[n].Name = id, "Steve"
		if told[n].At.IsZero() {
			told[n].At = time.Now().UTC()
		}
		told[n].Since = told[n].At
	}
	s.commit(store.Replace(key, players.PresencePart{Part: id.Part(), Players: told}, old.ModRev))
}

func TestAPlayerIsKnownAtOnceWhereItWasToldAndSoonOnEveryGateway(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	a.node("node-1", fleet.Resources{MemoryMiB: 4096})
	a.group("lobby", nil)
	a.group("edge", map[string]any{"platform": "VELOCITY"})
	lobby, other, edge := a.inside("lobby", "node-1"), a.inside("lobby", "node-1"), a.inside("edge", "node-1")
	path := "/api/v1/players/" + string(steve)

	a.do("GET", path, nil).want(404)
	lobby.do("POST", "/api/plugin/player-join", `{"uuid":"`+string(steve)+`","name":"Steve"}`).want(400).naming("X-Prexor-Sequence")
	lobby.say("/api/plugin/player-join", `{"uuid":"`+strings.ToUpper(string(steve))+`","name":"Steve","group":"lobby","world":3}`).want(200).is("status", "ok")
	a.do("GET", path, nil).want(200).is("id", steve).is("name", "Steve").is("currentInstance", "lobby-1").is("currentGroup", "lobby").is("proxyInstance", "").is("edition", "java")
	a.do("GET", "/api/v1/players", nil).want(200).is("total", 1)
	lobby.do("POST", "/api/plugin/player-leave", `{"uuid":"`+string(steve)+`"}`, "X-Prexor-Sequence", "1").want(401).naming("X-Prexor-Sequence")
	edge.say("/api/proxy/player-join", `{"uuid":"`+strings.ReplaceAll(string(steve), "-", "")+`","name":"Steve","instanceId":"lobby-1","group":"lobby","edition":"JAVA"}`).want(200)
	a.do("GET", path, nil).want(200).is("currentInstance", "lobby-1").is("proxyInstance", "edge-1").is("edition", "JAVA")

	a.publish("node-1", steve, players.Presence{By: lobby.id, Said: 1}, players.Presence{By: edge.id, Proxy: true, On: lobby.id, Said: 1})
	eventually(t, b, "GET", path, 200)
	b.do("GET", path, nil).is("currentInstance", "lobby-1").is("proxyInstance", "edge-1")

	there := other.on(b)
	there.say("/api/plugin/player-join", `{"uuid":"`+string(steve)+`","name":"Steve"}`).want(200)
	b.do("GET", path, nil).want(200).is("currentInstance", "lobby-2")
	away := lobby.on(b)
	away.say("/api/plugin/player-leave", `{"uuid":"`+string(steve)+`"}`).want(200)
	there.say("/api/plugin/player-leave", `{"uuid":"`+string(steve)+`"}`).want(200)
	edge.on(b).say("/api/proxy/player-leave", `{"uuid":"`+string(steve)+`"}`).want(200)
	b.do("GET", path, nil).want(404)
	b.do("GET", "/api/v1/players", nil).want(200).is("total", 0)
	a.publish("node-1", steve)
	await.That(t, "nobody is there any more", func() string {
		got := a.do("GET", path, nil)
		return await.Unless(got.status == 404, "%s", got.raw)
	})
}

func TestAPlayerBehindAProxyCountsOnceInAllFigures(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 8192})
	s.group("lobby", nil)
	s.group("games", nil)
	s.group("edge", map[string]any{"platform": "VELOCITY"})
	s.group("bedrock", map[string]any{"platform": "GEYSER"})
	on := map[string]fleet.InstanceID{}
	for _, g := range []string{"lobby", "games", "edge", "bedrock"} {
		on[g] = s.inside(g, "node-1").id
	}
	key := keys.Report("node-1")
	for name, c := range map[string]struct {
		lobby, games, edge, bedrock, want int
	}{
		"all through the proxy":                        {lobby: 2, games: 3, edge: 5, want: 5},
		"some through two proxies":                     {lobby: 2, games: 3, edge: 5, bedrock: 2, want: 5},
		"some at a server directly":                    {lobby: 2, games: 3, edge: 1, want: 5},
		"on the proxy, and their servers tell nothing": {lobby: 1, edge: 4, want: 4},
		"nobody": {},
	} {
		t.Run(name, func(t *testing.T) {
			at := *s
			at.t = t
			var rev int64
			if old, err := store.Get(t.Context(), s.store, key); err == nil {
				rev = old.ModRev
			}
			figures := map[fleet.InstanceID]reports.InstanceReport{}
			for g, n := range map[string]int{"lobby": c.lobby, "games": c.games, "edge": c.edge, "bedrock": c.bedrock} {
				figures[on[g]] = reports.InstanceReport{Players: n, PlayersKnown: true}
			}
			at.commit(store.Replace(key, reports.Report{Node: "node-1", At: time.Now().UTC(), Instances: figures}, rev))
			at.do("GET", "/api/v1/overview", nil).want(200).is("playerCount", c.want)
			at.do("GET", "/api/v1/metrics/summary", nil).want(200).is("players", c.want)
			if got := system.Sample(s.view.Snapshot())[0]; got != float64(c.want) {
				t.Errorf("the timeseries get %v players, want %d", got, c.want)
			}
		})
	}
}

func TestFiguresCountNoPlayersOfAnInstanceThatIsOffline(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	lobby := s.inside("lobby", "node-1")
	s.commit(store.Create(keys.Report("node-1"), reports.Report{Node: "node-1", At: time.Now().UTC(), Instances: map[fleet.InstanceID]reports.InstanceReport{
		lobby.id: {Players: 5, PlayersKnown: true},
	}}))
	s.do("GET", "/api/v1/overview", nil).want(200).is("playerCount", 5).is("instanceCount", 1)
	s.status(lobby.id, "node-1", fleet.Status{State: fleet.Offline})
	s.do("GET", "/api/v1/overview", nil).want(200).is("playerCount", 0).is("instanceCount", 1)
}

func TestPlayersOfAnInstanceThatLivesNoMoreAreNotThere(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	lobby := s.inside("lobby", "node-1")
	s.publish("node-1", steve, players.Presence{By: lobby.id})
	s.do("GET", "/api/v1/players", nil).want(200).is("total", 1)
	s.status(lobby.id, "node-1", fleet.Status{State: fleet.Offline})
	s.do("GET", "/api/v1/players", nil).want(200).is("total", 0)
	s.do("GET", "/api/v1/players/"+string(steve), nil).want(404)
}

func TestInvalidPlayerIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	lobby := s.inside("lobby", "node-1")
	for _, id := range []string{"steve", "069a79f4-44e9-4726-a5be-fca90e38aaf", "069a79f444e9-4726-a5be-fca90e38aaf5"} {
		s.do("GET", "/api/v1/players/"+id, nil).want(400).naming("UUID")
		lobby.say("/api/plugin/player-join", `{"uuid":"`+id+`","name":"Steve"}`).want(400).naming("uuid")
		lobby.say("/api/plugin/player-leave", `{"uuid":"`+id+`"}`).want(400).naming("uuid")
	}
	lobby.say("/api/plugin/player-join", `{"uuid":"`+string(steve)+`"}`).want(422).naming("name")
	lobby.say("/api/plugin/player-join", `{"uuid":"`+string(steve)+`","name":"`+strings.Repeat("x", 65)+`"}`).want(422).naming("name")
	lobby.say("/api/plugin/player-join", `{"uuid":"`+string(steve)+`","name":"x","edition":"`+strings.Repeat("x", 17)+`"}`).want(422).naming("edition")
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.beats) != 0 {
		t.Errorf("the agent was told %+v", a.beats)
	}
}
