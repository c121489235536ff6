package apigateway

import (
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestAProxyIsToldOfAllNetworks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	for _, g := range []string{"lobby", "games"} {
		s.group(g, nil)
	}
	s.group("edge", map[string]any{"platform": "VELOCITY"})
	edge := s.inside("edge", "node-1")
	if r := edge.do("GET", "/api/proxy/networks", nil).want(200); r.raw != "[]" {
		t.Errorf("of no networks: %s", r.raw)
	}
	s.do("POST", "/api/v1/networks", `{"name":"b","lobbyGroup":"games"}`).want(201)
	s.do("POST", "/api/v1/networks", `{"name":"a","lobbyGroup":"lobby","fallbackGroups":["games"],"proxyGroups":["edge"],"kickMessage":"full"}`).want(201)
	edge.do("GET", "/api/proxy/networks", nil).want(200).is("0.name", "a").is("0.lobbyGroup", "lobby").is("0.fallbackGroups", []string{"games"}).
		is("0.proxyGroups", []string{"edge"}).is("0.kickMessage", "full").is("1.name", "b").is("1.fallbackGroups", []string{})
	s.do("GET", "/api/proxy/networks", nil).want(401)
	edge.do("GET", "/api/plugin/networks", nil).want(404)
}
