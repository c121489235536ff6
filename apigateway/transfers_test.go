package apigateway

import (
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// pending returns the transfers for a proxy as "<player> <target> <node> <address> <port>".
func (i *inside) pending() []any {
	i.t.Helper()
	list, ok := i.do("GET", "/api/proxy/pending-transfers?proxyId="+i.token, nil).want(200).body.([]any)
	if !ok {
		i.t.Fatal("no list")
	}
	return list
}

func TestATransferIsPendingAtThePlayersProxyUntilThePlayerIsThere(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	a.node("node-1", fleet.Resources{MemoryMiB: 4096})
	a.group("lobby", nil)
	a.group("game", nil)
	a.group("edge", map[string]any{"platform": "VELOCITY"})
	lobby, game, edge, other := a.inside("lobby", "node-1"), a.inside("game", "node-1"), a.inside("edge", "node-1"), a.inside("edge", "node-1")
	path := "/api/v1/players/" + string(steve) + "/transfer"
	a.do("POST", path, `{"targetInstanceId":"game-1"}`).want(404)
	a.publish("node-1", steve, players.Presence{By: lobby.id}, players.Presence{By: edge.id, Proxy: true, On: lobby.id})

	before := a.revision()
	a.do("POST", path, `{"targetInstanceId":"nowhere-1"}`).want(404)
	a.do("POST", path, `{}`).want(422).naming("targetInstanceId")
	lobby.say("/api/plugin/transfer", `{"playerUuid":"steve","targetInstanceId":"game-1"}`).want(400).naming("playerUuid must be a UUID")
	lobby.say("/api/plugin/transfer", `{"playerUuid":"61699b2e-d327-4a01-9f1e-0ea8c3f06bc6","targetInstanceId":"game-1"}`).want(404)
	lobby.do("POST", "/api/plugin/transfer", `{"playerUuid":"`+string(steve)+`","targetInstanceId":"game-1"}`).want(400).naming("X-Prexor-Sequence")
	edge.do("GET", "/api/proxy/pending-transfers?proxyId="+other.token, nil).want(403)
	edge.do("POST", "/api/plugin/transfer", `{}`, "X-Prexor-Sequence", "x").want(400)
	if keys := a.moved(before); len(keys) > 0 {
		t.Errorf("what was refused wrote something: %v", keys)
	}

	a.do("POST", path, `{"targetInstanceId":"game-1"}`).want(200).is("status", "transfer_queued").is("playerId", steve).is("targetInstanceId", "game-1")
	there := edge.on(b)
	there.soon("GET", "/api/proxy/pending-transfers?proxyId="+edge.token, 200)
	await.That(t, "the transfer at the other gateway", func() string { return await.Unless(len(there.pending()) == 1, "%v", there.pending()) })
	one, _ := there.pending()[0].(map[string]any)
	if one["playerUuid"] != string(steve) || one["targetInstanceId"] != "game-1" || one["nodeId"] != "node-1" || one["nodeAddress"] != "10.0.0.1" || one["port"] != 30000. {
		t.Errorf("pending %v", one)
	}
	if got := other.pending(); len(got) != 0 {
		t.Errorf("another proxy is told %v", got)
	}
	there.say("/api/proxy/transfer-ack/steve", nil).want(400)
	other.say("/api/proxy/transfer-ack/"+string(steve), nil).want(404).naming("another proxy")
	if got := there.pending(); len(got) != 1 {
		t.Errorf("another proxy has taken it as done: %v", got)
	}
	there.say("/api/proxy/transfer-ack/"+string(steve), nil).want(200).is("status", "ok")
	if got := there.pending(); len(got) != 0 {
		t.Errorf("once it was sent, %v", got)
	}
	if _, err := store.Get(t.Context(), a.store, keys.Transfer(steve)); err != nil {
		t.Errorf("it is not remembered until the player is there: %v", err)
	}
	a.publish("node-1", steve, players.Presence{By: game.id}, players.Presence{By: edge.id, Proxy: true, On: game.id})
	await.That(t, "the transfer is over", func() string {
		_, err := store.Get(t.Context(), a.store, keys.Transfer(steve))
		return await.Unless(errs.Is(err, errs.NotFound), "%v", err)
	})
	there.on(b).say("/api/proxy/transfer-ack/"+string(steve), nil).want(200) // repeated
	a.status(game.id, "node-1", fleet.Status{State: fleet.Stopping})
	a.do("POST", path, `{"targetInstanceId":"game-1"}`).want(409)
}

func TestATransferToAGroupIsToTheOneWithTheFewestPlayers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	s.group("game", map[string]any{"maxPlayers": 10})
	s.group("empty", nil)
	lobby := s.inside("lobby", "node-1")
	games := []*inside{s.inside("game", "node-1"), s.inside("game", "node-1"), s.inside("game", "node-1")}
	s.publish("node-1", steve, players.Presence{By: lobby.id})
	report := func(players ...int) {
		t.Helper()
		r := reports.Report{Node: "node-1", Instances: map[fleet.InstanceID]reports.InstanceReport{}}
		for n, count := range players {
			r.Instances[games[n].id] = reports.InstanceReport{Players: count, PlayersKnown: true}
		}
		old, err := store.Get(t.Context(), s.store, keys.Report("node-1"))
		if err != nil {
			old.ModRev = 0
		}
		s.commit(store.Replace(keys.Report("node-1"), r, old.ModRev))
	}
	to := func(group string) *reply {
		return lobby.say("/api/plugin/transfer-to-group", `{"playerUuid":"`+string(steve)+`","group":"`+group+`"}`)
	}
	to("none").want(404)
	to("empty").want(409)
	report(4, 3, 9)
	to("game").want(200).is("targetInstanceId", "game-2")
	report(4, 10, 9)
	to("game").want(200).is("targetInstanceId", "game-1")
	report(10, 10, 10)
	to("game").want(409)
	report(10, 10, 2)
	s.do("POST", "/api/v1/networks", `{"name":"main","lobbyGroup":"lobby","memberGroups":["game"]}`).want(201)
	s.publish("node-1", steve, players.Presence{By: games[2].id})
	to("game").want(200).is("targetInstanceId", "game-3") // the others are full
	report(5, 10, 2)
	to("game").want(200).is("targetInstanceId", "game-1")
}

func TestThePlayersOfARetiringInstanceAreSentElsewhere(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	s.group("game", map[string]any{"fallbackGroup": "lobby"})
	s.group("edge", map[string]any{"platform": "VELOCITY"})
	s.inside("lobby", "node-1")
	first, second, edge := s.inside("game", "node-1"), s.inside("game", "node-1"), s.inside("edge", "node-1")
	s.publish("node-1", steve, players.Presence{By: first.id}, players.Presence{By: edge.id, Proxy: true, On: first.id})
	retire := func(id fleet.InstanceID, after int) {
		t.Helper()
		i, err := store.Get(t.Context(), s.store, keys.Intent(id))
		if err != nil {
			t.Fatal(err)
		}
		rev := i.ModRev
		i.Retire = &fleet.Retirement{Reason: fleet.ReasonRestart, Message: "it gets its settings", TransferAfterSeconds: after, DeadlineSeconds: 600}
		s.commit(store.Replace(keys.Intent(id), i, rev))
	}
	target := func() any {
		for _, p := range edge.pending() {
			one, _ := p.(map[string]any)
			return one["targetInstanceId"]
		}
		return "nowhere"
	}
	retire(first.id, 3600)
	s.do("GET", "/api/v1/services/game-1", nil).want(200).is("state", "DRAINING")
	for _, i := range edge.list("/api/proxy/instances") {
		if i["instanceId"] == "game-1" {
			t.Errorf("proxies may send players to %v", i)
		}
	}
	s.do("POST", "/api/v1/players/"+string(steve)+"/transfer", `{"targetInstanceId":"game-1"}`).want(409).naming("takes no more players")
	if to := target(); to != "nowhere" {
		t.Errorf("before its time the player is sent to %v", to)
	}
	retire(first.id, 0)
	await.That(t, "the transfer to another instance of the group", func() string { return await.Unless(target() == "game-2", "%v", target()) })
	retire(second.id, 3600)
	await.That(t, "the transfer to the fallback group", func() string { return await.Unless(target() == "lobby-1", "%v", target()) })
}
