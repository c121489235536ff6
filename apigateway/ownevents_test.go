package apigateway

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
)

// alex is another player, and herobrine a third.
const (
	alex      fleet.PlayerID = "853c80ef-3c37-49fd-aa49-938b674adae6"
	herobrine fleet.PlayerID = "f84c6a79-0a4e-45e0-879b-cd49ebd4c4e2"
)

// watch opens the stream of events of an instance at a gateway.
func (i *inside) watch(at *site, query string) *await.Text {
	i.t.Helper()
	ticket := i.do("POST", "/api/plugin/events/ticket", nil).want(200).is("expiresInSeconds", 30).field("ticket").(string)
	return at.as("").stream("/api/v1/events/stream?ticket=" + ticket + query)
}

// comes waits until a stream has said a text, and demands that it never said others.
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

	a.publish("node-1", alex, fleet.Presence{By: far.id, Said: 1})
	a.publish("node-1", steve, fleet.Presence{By: games.id, Said: 1}, fleet.Presence{By: edge.id, Proxy: true, On: games.id, Said: 1})
	comes(t, ofLobby, string(steve), string(alex))
	comes(t, ofCrashes, string(steve), string(alex))
	comes(t, ofEdge, string(steve), string(alex))
	a.status(far.id, "node-1", fleet.Status{State: fleet.Starting, TokenHash: hashOf(far.token)})
	comes(t, ofFar, "INSTANCE_STATE_CHANGED")
	comes(t, ofFar, string(alex), string(steve))
	comes(t, ofLobby, "INSTANCE_STATE_CHANGED")

	a.do("PUT", "/api/v1/networks/main", `{"name":"main","lobbyGroup":"lobby","memberGroups":["games","far"]}`).want(200)
	comes(t, ofFar, "NETWORK_UPDATED")
	a.publish("node-1", herobrine, fleet.Presence{By: lobby.id, Said: 1})
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
	a := newSite(t)
	b := second(t, a)
	a.node("node-1", fleet.Resources{MemoryMiB: 4096})
	a.group("lobby", nil)
	one, two, three := a.inside("lobby", "node-1"), a.inside("lobby", "node-1"), a.inside("lobby", "node-1")
	revoked, ended, stays := one.watch(b, ""), two.watch(b, ""), three.watch(b, "")
	unused := one.do("POST", "/api/proxy/events/ticket", nil).want(200).field("ticket").(string)
	console := three.do("POST", "/api/plugin/events/ticket", nil).want(200).field("ticket").(string)
	a.as("").do("GET", "/api/v1/services/lobby-3/console?ticket="+console, nil).want(401)
	a.as("").do("GET", "/api/v1/events/stream?ticket="+console, nil).want(401) // it is used up
	three.do("GET", "/api/v1/events/stream", nil).want(401)
	a.do("POST", "/api/plugin/events/ticket", nil).want(401)

	a.do("DELETE", "/api/v1/workloads/credentials/instances/lobby-1", nil).want(200)
	a.status(two.id, "node-1", fleet.Status{State: fleet.Stopped, TokenHash: hashOf(two.token)})
	comes(t, revoked, "cut off: ")
	comes(t, ended, "cut off: ")
	b.as("").do("GET", "/api/v1/events/stream?ticket="+unused, nil).want(401)
	a.group("another", nil)
	comes(t, stays, "another", "cut off")
}
