package apigateway

import (
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// list returns a list response as objects by field name.
func (i *inside) list(path string) (all []map[string]any) {
	i.t.Helper()
	r := i.do("GET", path, nil).want(200)
	list, ok := r.body.([]any)
	if !ok {
		i.t.Fatalf("%s is no list: %s", path, r.raw)
	}
	for _, one := range list {
		all = append(all, one.(map[string]any))
	}
	return all
}

func TestServersAndProxiesAreToldOfServersGroupsAndPlayersAndOfNoSecrets(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", map[string]any{"env": map[string]string{"PASSWORD": "hunter2"}, "maxPlayers": 40, "maintenance": true, "maintenanceMessage": "soon"})
	s.group("game", nil)
	s.group("edge", map[string]any{"platform": "VELOCITY"})
	s.group("own-edge", map[string]any{"platform": "OURS", "platformVersion": "1"})
	s.do("POST", "/api/v1/catalog/OURS/versions", map[string]string{
		"version": "1", "downloadUrl": "https://example.org/x.jar", "sha256": strings.Repeat("a", 64), "category": "PROXY",
	}).want(201)
	lobby, game, edge, _ := s.inside("lobby", "node-1"), s.inside("game", "node-1"), s.inside("edge", "node-1"), s.inside("own-edge", "node-1")
	gone := s.inside("game", "node-1")
	s.status(gone.id, "node-1", fleet.Status{State: fleet.Stopped})
	s.status(lobby.id, "node-1", fleet.Status{State: fleet.Online, StartedAt: time.Now().Add(-time.Hour), TokenHash: hashOf(lobby.token)})
	s.commit(store.Create(keys.Report("node-1"), reports.Report{Node: "node-1", Instances: map[fleet.InstanceID]reports.InstanceReport{lobby.id: {Players: 3, PlayersKnown: true}}}))
	s.publish("node-1", steve, players.Presence{By: lobby.id}, players.Presence{By: edge.id, Proxy: true, Edition: "JAVA"})

	for _, who := range []*inside{lobby, edge} {
		base := "/api/plugin"
		if who == edge {
			base = "/api/proxy"
		}
		servers := who.list(base + "/instances")
		if len(servers) != 2 || servers[0]["instanceId"] != "game-1" || servers[1]["instanceId"] != "lobby-1" {
			t.Fatalf("servers: %v", servers)
		}
		one := servers[1]
		if one["group"] != "lobby" || one["nodeId"] != "node-1" || one["nodeAddress"] != "10.0.0.1" || one["state"] != "RUNNING" ||
			one["port"] != 30000. || one["playerCount"] != 3. || one["uptimeMs"].(float64) < 3600e3 || len(one) != 8 {
			t.Errorf("a server: %v", one)
		}
		groups := who.list(base + "/groups")
		if len(groups) != 4 || groups[2]["name"] != "lobby" {
			t.Fatalf("groups: %v", groups)
		}
		g := groups[2]
		if env, _ := g["env"].(map[string]any); len(env) != 0 || g["maxPlayers"] != 40. || g["onlineCount"] != 3. || g["isMaintenance"] != true || g["maintenanceMessage"] != "soon" || len(g) != 17 {
			t.Errorf("a group: %v", g)
		}
	}
	all := edge.list("/api/proxy/players")
	if len(all) != 1 || all[0]["id"] != string(steve) || all[0]["instanceId"] != "lobby-1" || all[0]["group"] != "lobby" || all[0]["edition"] != "JAVA" || len(all[0]) != 5 {
		t.Errorf("players: %v", all)
	}
	if all := lobby.list("/api/plugin/players"); len(all) != 1 {
		t.Errorf("a server does not see its own players: %v", all)
	}
	if all := game.list("/api/plugin/players"); len(all) != 1 {
		t.Errorf("a server in no network does not see the players of another group in none: %v", all)
	}
}
