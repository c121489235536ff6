package apigateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestWhatAServerOrAProxyMeasuresIsReadOnAnyGateway(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	agent := a.node("node-1", fleet.Resources{MemoryMiB: 4096})
	a.group("lobby", nil)
	a.group("edge", map[string]any{"platform": "VELOCITY"})
	lobby, edge := a.inside("lobby", "node-1"), a.inside("edge", "node-1")
	a.do("GET", "/api/v1/services/lobby-1/metrics", nil).want(404)
	a.do("GET", "/api/v1/services/none-1/metrics", nil).want(404)
	lobby.say("/api/plugin/metrics", `{"tps1m":19.5,"heapUsedMb":512,"playerCount":3,"maxPlayers":20,"worlds":[{"name":"world","playerCount":3}],"serverVersion":"1.21","mood":"fine"}`).want(200)
	eventually(t, b, "GET", "/api/v1/services/lobby-1/metrics", 200)
	got := b.do("GET", "/api/v1/services/lobby-1/metrics", nil).want(200).is("instanceId", "lobby-1").is("tps1m", 19.5).is("heapUsedMb", 512).
		is("gcTimeMs", 0).is("serverVersion", "1.21").is("collectedAt", "2001-09-09T01:46:40Z").is("mood", nil)
	if worlds, _ := got.field("worlds").([]any); len(worlds) != 1 || len(got.body.(map[string]any)) != 22 {
		t.Errorf("%s", got.raw)
	}
	b.do("GET", "/api/v1/services/lobby-1/proxy-metrics", nil).want(404)
	lobby.say("/api/plugin/metrics", `{"playerCount":-1}`).want(422).naming("playerCount")
	lobby.say("/api/plugin/metrics", `{"tps1m":"fast"}`).want(400).naming("tps1m")
	pings := strings.Repeat(`{"uuid":"`+string(steve)+`","username":"Steve","ping":31},`, 600)
	edge.say("/api/proxy/metrics", fmt.Sprintf(`{"proxyMemoryUsedMb":200,"totalNetworkPlayers":600,"playerPings":[%s]}`, strings.TrimSuffix(pings, ","))).want(200)
	got = a.do("GET", "/api/v1/services/edge-1/proxy-metrics", nil).want(200).is("instanceId", "edge-1").is("totalNetworkPlayers", 600)
	if kept, _ := got.field("playerPings").([]any); len(kept) != 500 || len(got.body.(map[string]any)) != 7 {
		t.Errorf("%d pings, %.200s", len(kept), got.raw)
	}
	agent.mu.Lock()
	if first := agent.beats[0]; *first.Players != 3 || *first.MaxPlayers != 20 || *first.TPS != 19.5 {
		t.Errorf("%+v", first)
	}
	agent.mu.Unlock()
	a.status(lobby.id, "node-1", fleet.Status{State: fleet.Stopped})
	a.do("GET", "/api/v1/services/lobby-1/metrics", nil).want(404)
}
